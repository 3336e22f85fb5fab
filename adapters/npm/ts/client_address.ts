import { AddressSource } from "./core/address.js";
import { MISSING_IP, senderKey } from "./core/key.js";
import { invalid, needsPeer, type TidegateError } from "./error.js";
import { choice, Fields } from "./fields.js";
import { type Identity, type Platform, PLATFORMS } from "./platform.js";

/** Finds out who has sent a request, by the address that the platform tells. */
export class ClientAddress {
  readonly #source: AddressSource;
  readonly #platform: string;

  constructor(platform: string, ipv6Prefix: number, trustTrueClientIp: boolean) {
    this.#source = new AddressSource(platform, ipv6Prefix, trustTrueClientIp);
    this.#platform = platform;
  }

  /** The key of who the application says has sent a request, or else of its address. `warn` is told if there is none. */
  keyOf(request: Request, peer: string | null | undefined, { subject, apiKey }: Identity, warn: (error: TidegateError) => void): string {
    const { fields } = this.#source;
    // The second field counts only if the first is absent.
    const told = (name: string | undefined) => (name && request.headers.get(name)) || undefined;
    const first = told(fields[0]);
    const second = first ? undefined : told(fields[1]);
    const key = senderKey(subject, apiKey, this.#source.find(first, second, typeof peer === "string" ? peer : undefined)?.name);
    if (key === MISSING_IP) {
      if (peer === null && !fields.length) throw needsPeer(this.#platform);
      const where = fields.length ? `tells it in ${fields.join(" or ")}` : "needs it in `peer`";
      warn(invalid("request", `no client address: ${this.#platform} ${where}; all such requests count as ${key}`));
    }
    return key;
  }
}

/** Whose requests count together: see `clientAddress`. */
export interface Sender {
  /** @internal */
  keyOf(request: Request, peer: string | null | undefined, identity: Identity, warn: (error: TidegateError) => void): string;
}

/** The options of an address. */
export interface AddressOptions {
  /** How many leading bits of an IPv6 address identify a client, 48 to 128. Default: 64. */
  ipv6Prefix?: number | undefined;
  /** On `spin`, read the address from `true-client-ip`. Only safe if every request comes through Akamai. */
  trustTrueClientIp?: boolean | undefined;
}

/** Has a `RateLimiter` count each request by its client's address, as this platform tells it: `sender: clientAddress("vercel")`. */
export function clientAddress(platform: Platform, options: AddressOptions = {}): Sender {
  const fields = new Fields(options, "", ["ipv6Prefix", "trustTrueClientIp"]);
  return new ClientAddress(choice(PLATFORMS)("platform", platform), fields.whole("ipv6Prefix") ?? 64, fields.flag("trustTrueClientIp") ?? false);
}
