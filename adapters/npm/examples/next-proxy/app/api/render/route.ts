import { render } from "../../../tidegate";

export async function GET(request: Request) {
  const verdict = await render.check(request);
  return verdict.response ?? verdict.onto(new Response("hello"));
}
