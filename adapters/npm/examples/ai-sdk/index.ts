import { serve } from "@hono/node-server";
import { Tidegate } from "@tidegate/edge/memory";
import { createTextStreamResponse, streamText } from "ai";
import { model } from "./model.js";

const quotas = [{ fixedWindow: { limit: 1_000, windowMs: 86_400_000 } }];
const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "tokens", quotas } });
const MAX_OUTPUT_TOKENS = 300;

/** Verify a session here. This example believes the client. */
const userOf = (request: Request) => `user:${request.headers.get("x-user")}`;

async function POST(request: Request): Promise<Response> {
  const prompt = await request.text();
  const estimate = Math.ceil(prompt.length / 4) + MAX_OUTPUT_TOKENS;
  const verdict = await tidegate.check(request, { key: userOf(request), estimate });
  if (verdict.response) return verdict.response;
  const result = streamText({
    model,
    prompt,
    maxOutputTokens: MAX_OUTPUT_TOKENS,
    // Before version 7: `onFinish: async ({ totalUsage })`. A stream that fails stays charged its estimate.
    onEnd: async ({ usage }) => {
      await tidegate.settle(verdict, { cost: usage.totalTokens ?? estimate }).catch(() => {}); // reported to `onError`
    },
  });
  void result.consumeStream(); // to its end, also if the client has gone
  return verdict.onto(createTextStreamResponse({ stream: result.textStream }));
}

const fetch = (request: Request) => (new URL(request.url).pathname === "/api/chat" ? POST(request) : new Response("home"));
serve({ fetch, hostname: process.env.HOST, port: Number(process.env.PORT) });
