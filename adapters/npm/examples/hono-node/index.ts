import { serve } from "@hono/node-server";
import { getConnInfo } from "@hono/node-server/conninfo";
import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/hono";
import { Hono } from "hono";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

const app = new Hono();
app.use("/api/*", limit(tidegate, { peer: (context) => getConnInfo(context).remote.address }));
app.get("/api/hello", (context) => context.text("hello"));
app.get("/", (context) => context.text("home"));

serve({ fetch: app.fetch, hostname: process.env.HOST, port: Number(process.env.PORT) });
