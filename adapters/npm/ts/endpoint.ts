import type { Answer } from "./calls.js";
import { invalid } from "./error.js";

/** The longest answer that is taken, as of `tidegate-redis`. */
const ANSWER_LEN_MAX = 1 << 20;

/** Where Upstash says how far a request's writes have come. Repeated, it makes the next request see them, wherever it is served. */
const SYNC_TOKEN = "upstash-sync-token";

/** Next.js caches what `fetch` brings unless told not to. Elsewhere no answer to a `POST` is cached, and nobody reads this. */
const NOT_CACHED = { next: { revalidate: 0 } };

/** A database's REST endpoint, by the host's `fetch`. */
export class Endpoint {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #answering: RequestRedirect;
  #redirect: RequestRedirect = "manual";

  constructor({ url, token }: { url: string; token: string }) {
    if (!takes(url, {})) throw invalid("url", "no URL; write https://<database>.upstash.io");
    this.#url = url;
    this.#headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    this.#answering = takes(url, { redirect: "error" }) ? "error" : "manual";
  }

  /**
   * Sends a command, once.
   *
   * No redirect is followed. Where one is an error a host need not keep the body for it, which on Node.js is a tenth of the
   * whole request; but only where it is not does its status tell what is wrong. So it is an error while answers come.
   */
  async post(body: string, signal: AbortSignal | undefined): Promise<Answer> {
    try {
      const init = { method: "POST", headers: this.#headers, body, redirect: this.#redirect, ...NOT_CACHED };
      const response = await fetch(this.#url, signal ? { ...init, signal } : init);
      const token = response.headers.get(SYNC_TOKEN);
      if (token) this.#headers[SYNC_TOKEN] = token;
      const answer: Answer = [response.status, await bytes(response)];
      this.#redirect = response.ok ? this.#answering : "manual";
      return answer;
    } catch (thrown) {
      this.#redirect = "manual";
      throw thrown;
    }
  }
}

/** Whether the host makes such a request. */
function takes(url: string, init: RequestInit): boolean {
  try {
    return Boolean(new Request(url, init));
  } catch {
    return false;
  }
}

/** What came: of more than an answer has, a little more than that. */
async function bytes(response: Response): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = response.body?.getReader();
  while (reader) {
    const { value, done } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.length;
    if (length > ANSWER_LEN_MAX) {
      reader.cancel().catch(() => undefined);
      break;
    }
  }
  if (chunks.length === 1) return chunks[0]!;
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}
