// An application on Node.js.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { TidegateStore } from "@tidegate/edge/express-rate-limit";
import { Tidegate } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";
import express, { type Request as ExpressRequest, type Response as ExpressResponse } from "express";
import { rateLimit, type Store } from "express-rate-limit";

const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["10 per minute"] } });

/** As Connect's `use` takes it. */
export const limited: (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => unknown = limit(tidegate);

const byUser = limit<IncomingMessage, ServerResponse>((_request, { url }) => (url === "/" ? tidegate : tidegate), {
  check: ({ headers }) => ({ key: String(headers["x-user"]) }),
  denied: ({ retryAfterMs }) => new Response(String(retryAfterMs), { status: 429 }),
});

export const server = createServer((req, res) => void byUser(req, res, () => res.end("hello")));

// Express, and the store for express-rate-limit.
const store: Store = new TidegateStore(tidegate, { prefix: process.env["PREFIX"] });
export const app = express();
app.use(rateLimit({ windowMs: 60_000, limit: 10, store }));
app.use(limit<ExpressRequest, ExpressResponse>(tidegate, { check: (req) => ({ peer: req.ip, key: req.get("x-user") ?? "anyone" }) }));
app.use("/api", limit(tidegate));
