import { Tidegate } from "@tidegate/edge";
import Fastify from "fastify";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

const app = Fastify();
app.addHook("onRequest", async (req, reply) => {
  if (req.url === "/") return;
  const request = new Request("http://localhost", { headers: req.headers as Record<string, string> });
  const { headers, response } = await tidegate.check(request, { peer: req.ip });
  reply.headers(headers);
  if (response) return reply.code(response.status).send(await response.text());
});
app.get("/api/hello", async () => "hello");
app.get("/", async () => "home");

await app.listen({ port: Number(process.env.PORT), host: process.env.HOST });
