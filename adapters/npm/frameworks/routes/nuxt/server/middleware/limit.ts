import { gate, ran } from "../../gate";

export default defineEventHandler(async (event) => {
  event.context.ran = ran;
  const request = new Request("http://localhost", { headers: event.headers });
  const target = event.node.req.originalUrl ?? event.path;
  const verdict = await gate.check(request, { target, method: event.method, framework: "nuxt", peer: "192.0.2.1" });
  setResponseHeaders(event, verdict.headers);
  return verdict.response;
});
