import type { Keys } from "../verdict.js";
import type { Matched } from "./rules/matcher.js";

/** What an application tells of a request: the options of its check, read. */
export interface Given {
  readonly peer: string | undefined;
  readonly subject: string | undefined;
  readonly apiKey: string | undefined;
  readonly key: string | undefined;
  readonly tier: string | undefined;
  readonly token: string | undefined;
  readonly botScore: number | undefined;
  readonly keys: Keys;
  readonly cost: number | undefined;
  /** Whether the cost is an estimate. */
  readonly isEstimate: boolean;
  /** Whether a request without an address is a mistake of the application, and not of a client. */
  readonly needsPeer: boolean;
  readonly now: number;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The parts of a request that a gate reads. */
export class Facts implements Matched {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly given: Given;
  readonly #headers: Headers;
  readonly #urlHost: string;
  #host: string | undefined;

  constructor({ method, url, headers }: Request, given: Given) {
    const [, host, path] = /^(?:[^:]*:\/\/)?([^/?#]*)(.*)$/s.exec(url)!;
    this.method = String(method);
    this.path = path || "/";
    this.given = given;
    this.#headers = headers;
    this.#urlHost = host!;
  }

  get botScore(): number | undefined {
    return this.given.botScore;
  }

  /** The host in lower case, without a port. Empty if there is none. */
  get host(): string {
    return (this.#host ??= hostName(utf8(this.field("host") ?? this.#urlHost)));
  }

  /** The value of a field. Each character of it is a byte. */
  field(name: string): string | undefined {
    return this.#headers.get(name) ?? undefined;
  }

  has(name: string): boolean {
    return this.field(name) !== undefined;
  }
}

/** The bytes of a field's value. */
export function bytesOf(value: string): Uint8Array {
  return Uint8Array.from(value, (character) => (character <= "\xff" ? character.charCodeAt(0) : 0x3f));
}

function utf8(value: string): string {
  if (/^[\0-\x7f]*$/.test(value)) return value;
  try {
    return decoder.decode(bytesOf(value));
  } catch {
    return "";
  }
}

/** A host without its port and the dot of the root. */
function hostName(host: string): string {
  const [, name] = /^(.*[^:]|):\d*$/s.exec(host) ?? [];
  return (name ?? host).replace(/\.$/, "").replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
