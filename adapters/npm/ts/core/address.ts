import { invalid } from "../error.js";

// The address of a client, from the field in which its platform tells it.

/** Four octets, or eight groups of 16 bits. */
export type Address = readonly number[];

/** The sender of a request, by its address. */
export interface Client {
  /** As it came. */
  readonly address: Address;
  /** The IPv4 address in it that counts. */
  readonly embedded: Address | undefined;
  /** The part of the address that identifies the client, as a part of a key. Undefined for an address that no client has. */
  readonly name: string | undefined;
}

/** What a field has instead of an address: nothing, or something else. */
const ABSENT = "absent";
const UNREADABLE = "unreadable";
type Missing = typeof ABSENT | typeof UNREADABLE;

/** The fields in which each platform tells the address. Only the second counts if the first is absent. */
const FIELDS: Readonly<Record<string, readonly string[]>> = {
  cloudflare: ["cf-connecting-ip"],
  vercel: ["x-vercel-forwarded-for", "x-real-ip"],
  netlify: ["x-nf-client-connection-ip"],
  spin: ["spin-client-addr"],
};

/** All Workers that call a Worker share this address: 2a06:98c0:3600::103. */
const WORKERS = "2a06:98c0:3600::103";

const OCTET = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const V4 = new RegExp(`^${Array(4).fill(OCTET).join("\\.")}$`);

/** How many clients are remembered, and by how long values. */
const KNOWN_MAX = 1_024;
const TOLD_LEN_MAX = 64;

/** Where a platform tells the address of a client. */
export class AddressSource {
  /** The header fields. There are none if it is the address of the connection. */
  readonly fields: readonly string[];
  readonly #platform: string;
  readonly #prefix: number;
  /** The clients of the last values. To read an address takes longer than all else that a decision in memory does. */
  readonly #known = new Map<string, Client>();

  /** `prefix` is the number of leading bits that identify a client. */
  constructor(platform: string, prefix: number, trustTrueClientIp: boolean) {
    if (prefix < 48 || prefix > 128) throw invalid("ipv6Prefix", `${prefix} is out of range; write 48 to 128`);
    this.fields = platform === "spin" && trustTrueClientIp ? ["true-client-ip"] : (FIELDS[platform] ?? []);
    this.#platform = platform;
    this.#prefix = prefix;
  }

  /** The sender by the values of the fields, or by the address of the connection. Undefined if there is not exactly one address. */
  find(first: string | undefined, second: string | undefined, peer: string | undefined): Client | undefined {
    const told = this.fields.length === 0 ? peer : second === undefined ? first : undefined;
    if (told === undefined || told.length > TOLD_LEN_MAX) return this.#find(first, second, peer);
    const known = this.#known.get(told);
    if (known) return known;
    const found = this.#find(first, second, peer);
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    if (found) this.#known.set(told, found);
    return found;
  }

  #find(first: string | undefined, second: string | undefined, peer: string | undefined): Client | undefined {
    const address = this.fields.length === 0 ? ofPeer(peer) : this.#told(first, second);
    if (typeof address === "string") return undefined;
    const isShared = this.#platform === "cloudflare" && written(address) === WORKERS;
    return isShared ? { address, embedded: undefined, name: undefined } : received(address, this.#prefix);
  }

  /** Whether the address is that of the connection. */
  get readsPeer(): boolean {
    return this.#platform === "fastly" || this.#platform === "direct";
  }

  #told(first: string | undefined, second: string | undefined): Address | Missing {
    // Spin adds the address after what the client has sent.
    const last = this.fields[0] === "spin-client-addr" ? first?.slice(first.lastIndexOf(",") + 1) : first;
    const found = read(last ?? "");
    return found === ABSENT && this.fields.length > 1 ? read(second ?? "") : found;
  }
}

/** Anything but one address counts as missing: a list may contain what the client wrote. */
function ofPeer(peer: string | undefined): Address | Missing {
  const address = peer === undefined ? undefined : addressOf(peer);
  return address ? specified(address) : ABSENT;
}

/** A field's value without the spaces around it. A client may send many inside, for which a regular expression takes quadratic time. */
export function trimmed(value: string): string {
  const isSpace = (at: number) => " \t\n\f\r".includes(value.charAt(at));
  let [start, end] = [0, value.length];
  while (start < end && isSpace(start)) start += 1;
  while (start < end && isSpace(end - 1)) end -= 1;
  return value.slice(start, end);
}

/** Reads a field's value: an address, which may have a port or a zone. */
function read(value: string): Address | Missing {
  const text = trimmed(value);
  if (text === "") return ABSENT;
  const [, before, port] = /^([^:]*):(\d{1,5})$/.exec(text) ?? [];
  const address = v4(text) ?? (port !== undefined && isPort(port) ? v4(before!) : undefined) ?? withZone(text);
  return address ? specified(address) : UNREADABLE;
}

function withZone(text: string): Address | undefined {
  const [, bracketed, port] = /^\[([^\]]*)\](?::(\d{1,5}))?$/.exec(text) ?? [];
  if (port !== undefined && !isPort(port)) return undefined;
  const [, address, zone] = /^([^%]*)(?:%(.*))?$/s.exec(bracketed ?? text)!;
  return zone === undefined || /^[\w%.~-]+$/.test(zone) ? v6(address!) : undefined;
}

function isPort(digits: string): boolean {
  return Number(digits) <= 0xffff;
}

/** The address that a text is, without a port or a zone. */
export function addressOf(text: string): Address | undefined {
  return v4(text) ?? v6(text);
}

/** An address as one of IPv6. */
export function mapped(address: Address): Address {
  return address.length === 4 ? [0, 0, 0, 0, 0, 0xffff, ...octetPairs(address)] : address;
}

function v4(text: string): Address | undefined {
  return V4.exec(text)?.slice(1).map(Number);
}

function v6(text: string): Address | undefined {
  const [, start, end] = /^(.*:)([\d.]+)$/.exec(text) ?? [];
  const octets = end?.includes(".") ? v4(end) : undefined;
  const whole = octets ? start + octetPairs(octets).map((group) => group.toString(16)).join(":") : text;
  const halves = whole.split("::").map((half) => (half === "" ? [] : half.split(":")));
  const [head, tail] = halves as [string[], string[]?];
  const count = head.length + (tail?.length ?? 0);
  if (halves.length > 2 || (tail ? count > 7 : count !== 8)) return undefined;
  const groups = [...head, ...Array<string>(8 - count).fill("0"), ...(tail ?? [])];
  return groups.every((group) => /^[\da-f]{1,4}$/i.test(group)) ? groups.map((group) => parseInt(group, 16)) : undefined;
}

function octetPairs([a, b, c, d]: Address): number[] {
  return [(a! << 8) | b!, (c! << 8) | d!];
}

/** An address that is not zero. An IPv4 address that is written as an IPv6 one counts as itself. */
function specified(address: Address): Address | Missing {
  const isMapped = address.length === 8 && address.slice(0, 5).every((group) => group === 0) && address[5] === 0xffff;
  const canonical = isMapped ? octetsOf(address[6]!, address[7]!) : address;
  return canonical.some((part) => part > 0) ? canonical : UNREADABLE;
}

function octetsOf(high: number, low: number): Address {
  return [high >> 8, high & 0xff, low >> 8, low & 0xff];
}

/** The client at an address. It has none that embeds an IPv4 address which is not public. */
function received(address: Address, prefix: number): Client {
  const inner = address.length === 4 ? undefined : embeddedIn(address);
  const embedded = inner && isPublic(inner) ? inner : undefined;
  return { address, embedded, name: inner ? embedded && written(embedded) : folded(address, prefix) };
}

/** The part of a key that identifies the client at an address, by so many leading bits. Undefined if no client has it. */
export function clientName(address: Address, prefix: number): string | undefined {
  const found = specified(address);
  return typeof found === "string" || prefix < 48 || prefix > 128 ? undefined : received(found, prefix).name;
}

/** The part of an address that identifies its client. */
function folded(address: Address, prefix: number): string {
  if (address.length === 4) return written(address);
  const kept = address.map((group, nth) => group & (0xffff << Math.min(Math.max(16 * (nth + 1) - prefix, 0), 16)) & 0xffff);
  return prefix === 128 ? written(kept) : `${written(kept)}/${prefix}`;
}

/** The client's IPv4 address in one of NAT64, of 6to4, or of Teredo, which inverts it. */
function embeddedIn([a, b, c, d, e, f, high, low]: Address): Address | undefined {
  if (a === 0x64 && b === 0xff9b && (c! | d! | e! | f!) === 0) return octetsOf(high!, low!);
  if (a === 0x2002) return octetsOf(b!, c!);
  return a === 0x2001 && b === 0 ? octetsOf(~high! & 0xffff, ~low! & 0xffff) : undefined;
}

/** Whether an IPv4 address can be that of a host on the Internet. */
function isPublic([a, b]: Address): boolean {
  const isHost = a !== 0 && a !== 127 && a! < 224;
  const isPrivate = a === 10 || (a === 172 && b! >> 4 === 1) || (a === 192 && b === 168);
  return isHost && !isPrivate && !(a === 169 && b === 254) && !(a === 100 && b! >> 6 === 1);
}

/** An address as text: as RFC 5952 says for IPv6. */
export function written(address: Address): string {
  if (address.length === 4) return address.join(".");
  const groups = address.map((group) => group.toString(16)).join(":");
  // The first of the longest runs of at least two zeros.
  const runs = groups.match(/\b0(?::0)+\b/g) ?? [];
  const longest = runs.reduce((longest, run) => (run.length > longest.length ? run : longest), "");
  return longest ? groups.replace(new RegExp(`(^|:)${longest}(:|$)`), "::") : groups;
}
