// Serves what `vercel build` wrote. Only Vercel has the router that does so: its routes are those of this app.

import { createServer } from "node:http";

const functions = "./.vercel/output/functions";
const { default: middleware } = await import(`${functions}/middleware.func/middleware.js`);
const { GET } = await import(`${functions}/api/hello.func/api/hello.js`);

async function respond(request) {
  if (new URL(request.url).pathname === "/") return new Response("home");
  const before = await middleware(request);
  if (before.headers.get("x-middleware-next") !== "1") return before;
  const response = await GET(request);
  for (const [name, value] of before.headers) if (name !== "x-middleware-next") response.headers.set(name, value);
  return response;
}

const server = createServer(async (req, res) => {
  const response = await respond(new Request(`http://localhost${req.url}`, { headers: req.headers }));
  res.writeHead(response.status, Object.fromEntries(response.headers)).end(await response.text());
});
server.listen(Number(process.env.PORT), process.env.HOST);
