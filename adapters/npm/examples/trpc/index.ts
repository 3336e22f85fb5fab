import { createServer } from "node:http";
import { Tidegate } from "@tidegate/edge/memory";
import { initTRPC, TRPCError } from "@trpc/server";
import { type CreateHTTPContextOptions, createHTTPHandler } from "@trpc/server/adapters/standalone";

const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

// `identify` would read its fields.
const request = new Request("http://localhost");

const t = initTRPC.context<CreateHTTPContextOptions>().create();

// Each call of a batch is limited by itself.
const limited = t.procedure.use(async ({ ctx: { req, res }, next }) => {
  const verdict = await tidegate.check(request, { peer: req.socket.remoteAddress });
  for (const [name, value] of Object.entries(verdict.headers)) res.setHeader(name, value);
  if (verdict.allowed) return next();
  throw new TRPCError({ code: verdict.limited ? "TOO_MANY_REQUESTS" : "SERVICE_UNAVAILABLE" });
});

const router = t.router({ hello: limited.query(() => "hello") });
const api = createHTTPHandler({ router, basePath: "/api/", createContext: (options) => options });

createServer((req, res) => (req.url === "/" ? res.end("home") : api(req, res))).listen(Number(process.env.PORT), process.env.HOST);
