import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import { Tidegate } from "@tidegate/edge/memory";
import { WebSocketServer } from "ws";

// A message counts for its connection and for its user, in one decision.
const quotas = [
  { fixedWindow: { limit: 2, windowMs: 86_400_000 }, by: "connection" },
  { fixedWindow: { limit: 3, windowMs: 86_400_000 }, by: "user" },
];
const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "messages", quotas } });

/** Verify a session here. This example believes the URL. */
const userOf = (req: IncomingMessage) => `user:${new URL(req.url ?? "/", "http://localhost").searchParams.get("user")}`;

const server = createServer((_req, res) => res.end("home"));
new WebSocketServer({ server }).on("connection", (socket, req) => {
  const keys = { connection: randomUUID(), user: userOf(req) };
  socket.on("message", async (message) => {
    const { allowed, limited, retryAfterMs } = await tidegate.limit(keys);
    if (allowed) return socket.send(`hello, ${message}`);
    socket.send(JSON.stringify({ error: limited ? "rate_limited" : "unavailable", retryAfterMs }));
  });
});

server.listen(Number(process.env.PORT), process.env.HOST);
