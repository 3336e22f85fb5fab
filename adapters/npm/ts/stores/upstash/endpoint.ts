import type { Database } from "./database.js";

/** The longest answer that is read, as in `tidegate-redis`. */
const ANSWER_LEN_MAX = 1 << 20;

/** Upstash's field for consistent reads: a request that repeats the last value sees all earlier writes, on any replica. */
const SYNC_TOKEN = "upstash-sync-token";

/** Keeps Next.js from caching the answers of `fetch`. Other hosts ignore it. */
const NOT_CACHED = { next: { revalidate: 0 } };

/**
 * Whether `fetch` sends a request again by itself if the connection ends before the answer, so that it would be charged twice
 * (denoland/deno#35610). It cannot repeat a stream.
 */
const REPEATS = "Deno" in globalThis;

/** What the endpoint answers. */
export interface HttpAnswer {
  status: number;
  text: string;
}

/** A database's REST endpoint, over the host's `fetch`. */
export class Endpoint {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #answering: RequestRedirect;
  #redirect: RequestRedirect = "manual";

  constructor({ url, token }: Database) {
    this.#url = url;
    this.#headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    this.#answering = takes(url, { redirect: "error" }) ? "error" : "manual";
  }

  /**
   * Sends a command once. Throws what says that the endpoint has failed.
   *
   * Redirects are never followed. With `redirect: "error"`, the host need not keep a copy of the body, which on Node.js saves
   * a tenth of the request's time. But the status of a redirect, which says what is wrong, is then hidden. So "error" is used
   * while answers arrive, and "manual" after a failure.
   */
  async post(body: string, signal: AbortSignal | undefined): Promise<HttpAnswer> {
    try {
      const sent = REPEATS ? { body: new Blob([body]).stream(), duplex: "half" } : { body };
      const init = { method: "POST", headers: this.#headers, ...sent, redirect: this.#redirect, ...NOT_CACHED };
      const response = await fetch(this.#url, signal ? { ...init, signal } : init);
      const token = response.headers.get(SYNC_TOKEN);
      if (token) this.#headers[SYNC_TOKEN] = token;
      const { status } = response;
      const text = await textOf(response);
      this.#redirect = response.ok ? this.#answering : "manual";
      if (status >= 500) throw { status, text } satisfies HttpAnswer;
      return { status, text };
    } catch (thrown) {
      this.#redirect = "manual";
      throw thrown;
    }
  }
}

/** Whether the host accepts such a request. */
function takes(url: string, init: RequestInit): boolean {
  try {
    return Boolean(new Request(url, init));
  } catch {
    return false;
  }
}

/** The body, or what to say of one that is too long. */
async function textOf(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let [text, length] = ["", 0];
  const reader = response.body?.getReader();
  while (reader) {
    const { value, done } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
    length += value.length;
    if (length > ANSWER_LEN_MAX) {
      reader.cancel().catch(() => undefined);
      return "an answer of more than a megabyte";
    }
  }
  return text + decoder.decode();
}
