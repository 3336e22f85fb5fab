import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/hono";
import { Hono } from "hono";
import { getConnInfo } from "hono/bun";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

const app = new Hono();
app.use("/api/*", limit(tidegate, { peer: (context) => getConnInfo(context).remote.address }));
app.get("/api/hello", (context) => context.text("hello"));
app.get("/", (context) => context.text("home"));

export default { fetch: app.fetch, hostname: process.env.HOST, port: Number(process.env.PORT) };
