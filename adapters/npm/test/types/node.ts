// An application on Node.js.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { Tidegate } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";

const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["10 per minute"] } });

/** As Connect's `use` takes it. */
export const limited: (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void) => unknown = limit(tidegate);

const byUser = limit<IncomingMessage, ServerResponse>((_request, { url }) => (url === "/" ? tidegate : tidegate), {
  check: ({ headers }) => ({ key: String(headers["x-user"]) }),
  denied: ({ retryAfterMs }) => new Response(String(retryAfterMs), { status: 429 }),
});

export const server = createServer((req, res) => void byUser(req, res, () => res.end("hello")));
