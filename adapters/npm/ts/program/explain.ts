import { isIP } from "node:net";
import { AddressSource, type Client } from "../core/address.js";
import { invalid, TidegateError } from "../error.js";
import type { GateCheck } from "../gate/check_options.js";
import { Facts } from "../gate/request_facts.js";
import { DIMENSIONS } from "../gate/rules/dimension_names.js";
import { appliedTo } from "../gate/rules/find_rules.js";
import { quoted } from "../gate/rules/quoted_text.js";
import type { Rule, Rules } from "../gate/rules/rules.js";
import { Sender } from "../gate/sender.js";
import { NOT_SIGNED, tokenOf } from "../gate/token_claims.js";
import { PLATFORMS } from "../platform.js";
import type { Command, Arguments } from "./arguments.js";
import { readOr, say } from "./check.js";
import { Explanation } from "./explanation.js";
import { Failed } from "./failure.js";
import { pretty } from "./json.js";
import { errln, outln } from "./output.js";
import { arrivedWith } from "./raw_request.js";

const HELP = `\
Show which rule, keys and limits of a rules file apply to a request, and why

Usage: tidegate explain [OPTIONS] --rules <FILE>

Options:
      --rules <FILE>           The rules file, in TOML or JSON
      --request <METHOD PATH>  The method and the path of a request, for example 'POST /login'.
                               Without it, the file is only checked
      --host <HOST>            The host of the request
      --header <NAME: VALUE>   A header field of the request, for example 'X-Api-Key: secret'. May
                               be repeated
      --platform <PLATFORM>    The platform that receives the request, whose header has the client's
                               address [default: direct]
      --peer <IP>              The address of the connection, for the platforms that read it: direct
                               and fastly
      --subject <SUBJECT>      The subject that the application has verified
      --tier <TIER>            The sender's tier
      --bot-score <0..255>     The bot score of the request
      --ja4 <FINGERPRINT>      The fingerprint of the client's TLS handshake
      --key <DIMENSION=KEY>    A key of the application, for example tenant=tenant:42. May be
                               repeated
      --limit <NAME=NUMBER>    A limit that the application gives, for example rpm=500. May be
                               repeated
      --overrides <FILE>       The file of overrides, whose limits of single keys precede those of
                               the rules
      --json                   Print JSON
  -h, --help                   Print help

Examples:
  tidegate explain --rules rules.toml --request 'POST /login' --peer 192.0.2.1
  tidegate explain --rules rules.toml --request 'GET /api/users' --platform cloudflare --header
  'CF-Connecting-IP: 192.0.2.1'
  tidegate explain --rules rules.toml --request 'GET /api/users' --subject alice --tier pro --json
  tidegate explain --rules rules.toml --request 'GET /api/users' --subject alice --limit rpm=500
  --overrides overrides.toml

Without --request, it checks the file as \`tidegate check\` does. Warnings about the file go to
standard error.

Exit codes: 0 success, 1 the file is wrong or the request cannot be decided, 2 the command line is
wrong.
`;


/** A method and a path. */
const REQUEST = /^([^ ]+) (\/.*)$/s;

/** A name and a number. */
const LIMIT = /^[^=]*=\+?(\d+)$/s;

export const EXPLAIN: Command = {
  name: "explain",
  options: [
    { name: "rules", value: "FILE", isRequired: true, isPath: true },
    { name: "request", value: "METHOD PATH", wrong: (text) => (REQUEST.test(text) ? undefined : "write a method and a path, such as 'POST /login'") },
    { name: "host", value: "HOST" },
    { name: "header", value: "NAME: VALUE", isMany: true, wrong: (text) => (text.includes(":") ? undefined : "write a name and a value, such as 'X-Api-Key: secret'") },
    { name: "platform", value: "PLATFORM", wrong: wrongPlatform },
    { name: "peer", value: "IP", wrong: (text) => (isIP(text) > 0 && !text.includes("%") ? undefined : "invalid IP address syntax") },
    { name: "subject", value: "SUBJECT" },
    { name: "tier", value: "TIER" },
    { name: "bot-score", value: "0..255", wrong: wrongScore },
    { name: "ja4", value: "FINGERPRINT" },
    { name: "key", value: "DIMENSION=KEY", isMany: true, wrong: (text) => (text.includes("=") ? undefined : "write a dimension and its key, such as tenant=tenant:42") },
    { name: "limit", value: "NAME=NUMBER", isMany: true, wrong: (text) => (LIMIT.test(text) && BigInt(LIMIT.exec(text)![1]!) < 2n ** 64n ? undefined : "write a name and a whole number, such as rpm=500") },
    { name: "overrides", value: "FILE", isPath: true },
    { name: "json" },
  ],
  help: HELP,
  run,
};

function wrongPlatform(text: string): string | undefined {
  if ((PLATFORMS as readonly string[]).includes(text)) return undefined;
  return `platform: ${quoted(text)} is not known; write cloudflare, vercel, netlify, fastly, spin or direct`;
}

function wrongScore(text: string): string | undefined {
  if (text === "") return "cannot parse integer from empty string";
  if (!/^\+?\d+$/.test(text)) return "invalid digit found in string";
  return Number(text) > 255 ? `${BigInt(text)} is not in 0..=255` : undefined;
}

async function run(args: Arguments): Promise<void> {
  const file = args.one("rules")!;
  const found = await readOr(file, args.one("overrides"));
  const request = REQUEST.exec(args.one("request") ?? "");
  if (found instanceof TidegateError || !request) {
    say(file, found);
    if (found instanceof TidegateError) throw new Failed();
    return;
  }
  const { rules } = found;
  for (const warning of rules.warnings) errln(`warning: ${warning}`);
  const { facts, sender, applied } = arrived(rules, args, { method: request[1]!, path: request[2]! });
  const explanation = new Explanation(rules, applied, facts, sender);
  if (args.has("json")) outln(pretty(explanation.json));
  else process.stdout.write(explanation.text);
  const { error } = explanation;
  if (!error) return;
  errln(`error: the request cannot be decided: ${error.message}`);
  throw new Failed();
}

/** The dimensions and the keys that the application gives. */
function keysIn(args: Arguments): [dimension: string, key: string][] {
  return args.all("key").map((text) => [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)]);
}

/** A request, its sender, and the rules that apply to it. */
function arrived(rules: Rules, args: Arguments, { method, path }: { method: string; path: string }): { facts: Facts; sender: Sender; applied: Rule[] } {
  const headers = args.all("header").map((field) => {
    const at = field.indexOf(":");
    return [field.slice(0, at).trim(), field.slice(at + 1).trim()] as const;
  });
  const facts = new Facts(arrivedWith({ method, path, host: args.one("host"), headers }), toldBy(args));
  const source = new AddressSource(args.one("platform") ?? "direct", 64, false);
  const [first, second] = source.fields;
  const sender = new Caller(rules, facts, source.find(first && facts.field(first), second && facts.field(second), args.one("peer")), keysIn(args));
  // Nobody gives keys that could verify a token.
  if (rules.tokens && !sender.isOn(rules.denied)) {
    const token = tokenOf(rules.tokens, facts);
    if (token !== undefined) sender.claims = token === NOT_SIGNED ? token : "no keys are given that could verify it";
  }
  return { facts, sender, applied: appliedTo(rules, facts, facts.paths) };
}

/** A sender of whom the command line may give two keys in a dimension. */
class Caller extends Sender {
  readonly #keys: readonly (readonly [dimension: string, key: string])[];

  constructor(rules: Rules, facts: Facts, client: Client | undefined, keys: readonly (readonly [dimension: string, key: string])[]) {
    super(rules, facts, client);
    this.#keys = keys;
  }

  override key(dimension: string): string {
    const isTwice = !DIMENSIONS.includes(dimension) && this.#keys.filter(([name]) => name === dimension).length > 1;
    if (isTwice) throw invalid("keys", `${quoted(dimension)} has two keys; give one`);
    return super.key(dimension);
  }
}

/** What the application tells of the request. */
function toldBy(args: Arguments): GateCheck {
  const score = args.one("bot-score");
  return {
    peer: args.one("peer"),
    subject: args.one("subject"),
    tier: args.one("tier"),
    botScore: score === undefined ? undefined : Number(score),
    ja4: args.one("ja4"),
    keys: Object.fromEntries(keysIn(args)),
    limits: Object.fromEntries(args.all("limit").map((text) => [text.slice(0, text.indexOf("=")), Number(text.slice(text.indexOf("=") + 1))])),
  };
}
