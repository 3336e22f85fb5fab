import { limit } from "@tidegate/edge/hono";
import { Hono } from "hono";
import { tidegate } from "../tidegate.mjs";

export const app = new Hono();
app.use("/api/*", limit(tidegate("cloudflare"), { refund: (response) => (response.status === 304 ? 1 : 0) }));
app.get("/api/hello", (context) => context.text("hello"));
app.get("/api/cached", (context) => context.body(null, 304));
app.get("/", (context) => context.text("home"));
