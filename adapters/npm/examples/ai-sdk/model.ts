import { simulateReadableStream } from "ai";
import { MockLanguageModelV4 } from "ai/test";

/** In place of a model of a provider, such as `openai("gpt-5")`. Its answer costs 150 tokens. */
export const model = new MockLanguageModelV4({
  doStream: async () => ({
    stream: simulateReadableStream({
      chunks: [
        { type: "text-start", id: "1" },
        { type: "text-delta", id: "1", delta: "hello" },
        { type: "text-end", id: "1" },
        {
          type: "finish",
          finishReason: { unified: "stop", raw: undefined },
          usage: {
            inputTokens: { total: 100, noCache: 100, cacheRead: undefined, cacheWrite: undefined },
            outputTokens: { total: 50, text: 50, reasoning: undefined },
          },
        },
      ],
    }),
  }),
});
