import { Tidegate } from "@tidegate/edge";
import Fastify from "fastify";
import type { IncomingHttpHeaders } from "node:http";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

// HTTP/2 has pseudo-header fields, whose names are no names of Headers.
const fields = (headers: IncomingHttpHeaders) =>
  Object.entries(headers).filter(([name]) => !name.startsWith(":")) as [string, string][];

const app = Fastify();
app.addHook("onRequest", async (req, reply) => {
  if (req.url === "/") return;
  const request = new Request("http://localhost", { headers: fields(req.headers) });
  const { headers, http } = await tidegate.check(request, { peer: req.ip });
  reply.headers(headers);
  if (http) return reply.code(http.status).send(http.body);
});
app.get("/api/hello", async () => "hello");
app.get("/", async () => "home");

await app.listen({ port: Number(process.env.PORT), host: process.env.HOST });
