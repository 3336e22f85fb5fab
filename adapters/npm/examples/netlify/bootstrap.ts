// In place of Netlify's own bootstrap, which is only online: the edge function before a site of two pages.

type Context = { next(): Promise<Response>; waitUntil(work: Promise<unknown>): void };
type EdgeFunction = (request: Request, context: Context) => Promise<Response>;

const context: Context = { next: async () => new Response("hello"), waitUntil: () => undefined };

export async function serve(load: () => Promise<Record<string, EdgeFunction>>) {
  const { limit } = await load();
  const options = { hostname: Deno.env.get("HOST"), port: Number(Deno.args[1]) };
  Deno.serve(options, (request) => (new URL(request.url).pathname === "/" ? new Response("home") : limit(request, context)));
}
