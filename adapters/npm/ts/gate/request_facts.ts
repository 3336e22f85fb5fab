import { invalid } from "../error.js";
import type { GateCheck } from "./check_options.js";
import { FRAMEWORKS, routedBy } from "./frameworks.js";
import { pathsOf } from "./request_target.js";
import type { Matched } from "./rules/matcher.js";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** What Cloudflare reports of a request. */
interface Reported {
  readonly cf?: { readonly botManagement?: { readonly ja4?: string } | null } | null;
}

/** The parts of a request that a gate reads. */
export class Facts implements Matched {
  readonly method: string;
  /** All that the host may take for its path, with the query. Its own comes first. */
  readonly paths: readonly string[];
  readonly ignoresCase: boolean;
  /** What the application tells of the request. */
  readonly options: GateCheck;
  readonly #headers: Headers;
  readonly #cf: Reported["cf"];
  readonly #urlHost: string;
  #hosts: readonly string[] | undefined;

  constructor({ method, url, headers, cf }: Request & Reported, options: GateCheck) {
    const [start, host] = /^(?:[^:]*:\/\/)?([^/?#]*)/.exec(url)!;
    const path = url.slice(start.length);
    const { target, framework } = options;
    this.method = options.method ?? String(method);
    const paths = target?.flatMap((target) => pathsOf(target) ?? unreadable()) ?? [path || "/"];
    this.paths = framework ? [...new Set(paths.flatMap((path) => routedBy(framework, path)))] : paths;
    this.ignoresCase = options.ignoreCase ?? (framework !== undefined && FRAMEWORKS[framework].ignoresCase);
    this.options = options;
    this.#headers = headers;
    this.#cf = cf;
    this.#urlHost = host!;
  }

  /** The time of the request: now, unless the application tells it. */
  get now(): number {
    return this.options.now ?? Date.now();
  }

  /** The fingerprint of the client's TLS handshake: the application's, or what Cloudflare reports beside the header fields. */
  get ja4(): string | undefined {
    return this.options.ja4 ?? this.#cf?.botManagement?.ja4;
  }

  get botScore(): number | undefined {
    return this.options.botScore;
  }

  get hosts(): readonly string[] {
    return (this.#hosts ??= hostsOf(utf8(this.field("host") ?? this.#urlHost)));
  }

  /** The value of a field. Each character of it is a byte. */
  field(name: string): string | undefined {
    return this.#headers.get(name) ?? undefined;
  }

  has(name: string): boolean {
    return this.field(name) !== undefined;
  }
}

/**
 * The error of a request target that has no path. It does not repeat the target, because a client chooses it, and also how often: so it is one
 * for all, and no error of the application.
 */
export const UNREADABLE = invalid("target", "neither a path, a URL nor *, or too long; write it as it arrived");

/** No handler may get a request whose rules nobody can find. */
function unreadable(): never {
  throw UNREADABLE;
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

/** Of several fields, which `Headers` joins, a server takes the first or the last. */
function hostsOf(field: string): string[] {
  const all = field.split(",").map((host) => hostName(host.replace(/^[\t\n\f\r ]+|[\t\n\f\r ]+$/g, "")));
  return [...new Set([all[0]!, all.at(-1)!])];
}

/** A host without its port and the dot of the root. */
function hostName(host: string): string {
  const [, name] = /^(.*[^:]|):\d*$/s.exec(host) ?? [];
  return (name ?? host).replace(/\.$/, "").replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
