import { env } from "cloudflare:workers";
import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/hono";
import { Hono } from "hono";

const options = { platform: "cloudflare", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } } as const;
const tidegate = Tidegate.fromEnv(options, { ...env });

const app = new Hono();
app.use("/api/*", limit(tidegate));
app.get("/api/hello", (context) => context.text("hello"));
app.get("/", (context) => context.text("home"));

export default app;
