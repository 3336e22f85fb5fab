// Finds the most specific rule of a request.

import type { Escapes, Reach } from "./path.js";
import { type Pattern, specificity } from "./pattern.js";

/** What rules match of a request. */
export interface Matched {
  readonly method: string;
  /** All that a server may take for its host, in lower case, without ports. One is empty if there is none. */
  readonly hosts: readonly string[];
  readonly botScore: number | undefined;
  /** Whether the host's routes ignore upper and lower case. */
  readonly ignoresCase: boolean;
  /** Whether it has a header field with this name, which is in lower case. */
  has(field: string): boolean;
}

/** The rules of a host, as a tree of path segments. */
interface Tree {
  readonly literal: Map<string, Tree>;
  any: Tree | undefined;
  /** The rules that match a path which ends here, most specific first. */
  readonly here: Entry[];
  /** The rules that also match longer paths, most specific first. */
  readonly prefix: Entry[];
}

interface Entry {
  readonly pattern: Pattern;
  readonly place: number;
}

/** The hosts that matter if no rule is for some hosts only. */
const ANY = [""];

type Found = (place: number) => boolean;

/** The rules by what they match. */
export class Matcher {
  readonly #normal: Hosts;
  /** With the paths as the file has them, if one differs from its normal form. */
  readonly #written: Hosts | undefined;
  /** How far they look at a path: they see whether it ends after their last segment, and whether a slash comes last. */
  readonly reach: Reach;

  /** `patterns` are those of the rules, in the order of the file. */
  constructor(patterns: readonly Pattern[]) {
    const written = ({ path }: Pattern) => path.segments.map((segment, nth) => (segment === undefined ? undefined : path.written[nth]!));
    const isOther = (pattern: Pattern) => written(pattern).some((text, nth) => text !== pattern.path.segments[nth]);
    this.#normal = new Hosts(patterns, ({ path }) => path.segments);
    this.#written = patterns.some(isOther) ? new Hosts(patterns, written) : undefined;
    let [segments, characters] = [0, 0];
    for (const { path } of patterns) {
      segments = Math.max(segments, path.segments.length);
      for (const text of [...path.segments, ...path.written]) characters = Math.max(characters, text?.length ?? 0);
    }
    // Nine characters may be one letter in lower case: the escapes of the Kelvin sign are.
    this.reach = [segments + 2, 9 * (characters + 1)];
  }

  /**
   * What a reading of a path is compared with: the rules' paths in their normal form, as the file has them, or in both forms. A server that
   * keeps the escapes of a request may have its routes in either form.
   */
  of(escapes: Escapes): Hosts[] {
    if (!this.#written || escapes === "normal") return [this.#normal];
    return escapes === "raw" ? [this.#written] : [this.#normal, this.#written];
  }
}

/** The rules by host, then by path. */
class Hosts {
  readonly #any = tree();
  readonly #exact = new Map<string, Tree>();
  /** By the end of the host, without the dot in front. */
  readonly #below = new Map<string, Tree>();

  constructor(patterns: readonly Pattern[], segments: (pattern: Pattern) => readonly (string | undefined)[]) {
    patterns.forEach((pattern, place) => this.#add(pattern, segments(pattern), place));
  }

  /** Adds the rule at a place after all that were added before. */
  #add(pattern: Pattern, segments: readonly (string | undefined)[], place: number): void {
    const { host, path } = pattern;
    let node = host.kind === "any" ? this.#any : child(host.kind === "exact" ? this.#exact : this.#below, host.name);
    for (const segment of segments) node = segment === undefined ? (node.any ??= tree()) : child(node.literal, segment);
    const entries = path.isPrefix ? node.prefix : node.here;
    const later = entries.findIndex((entry) => specificity(entry.pattern) < specificity(pattern));
    entries.splice(later < 0 ? entries.length : later, 0, { pattern, place });
  }

  /**
   * Calls `found` with each rule for a request, if its path has these segments, most specific first, until it returns true for each of its
   * hosts. If one before the last is empty, it does so for routers whose parameters take it, and then for those whose parameters do not.
   */
  visit(request: Matched, parts: readonly string[], found: Found): void {
    const empty = parts.indexOf("");
    const hasEmpty = empty >= 0 && empty < parts.length - 1;
    let takesEmpty = true;
    const visits = (tree: Tree | undefined) => tree !== undefined && visit(tree, request, parts, 0, takesEmpty, found);
    const visitsOf = (host: string) => {
      if (visits(this.#exact.get(host))) return true;
      for (let dot = host.indexOf("."); dot >= 0; dot = host.indexOf(".", dot + 1)) {
        if (visits(this.#below.get(host.slice(dot + 1)))) return true;
      }
      return visits(this.#any);
    };
    const isForAny = this.#exact.size + this.#below.size === 0;
    for (const host of isForAny ? ANY : request.hosts) {
      takesEmpty = true;
      visitsOf(host);
      if (!hasEmpty) continue;
      takesEmpty = false;
      visitsOf(host);
    }
  }
}

function tree(): Tree {
  return { literal: new Map(), any: undefined, here: [], prefix: [] };
}

function child(trees: Map<string, Tree>, name: string): Tree {
  const found = trees.get(name) ?? tree();
  trees.set(name, found);
  return found;
}

/** Visits in this order: a segment as it is before any segment, a longer path before a shorter one. Returns whether `found` did. */
function visit({ literal, any, here, prefix }: Tree, request: Matched, parts: readonly string[], at: number, takesEmpty: boolean, found: Found): boolean {
  if (at === parts.length) {
    if (hits(here, request, found)) return true;
  } else {
    const own = literal.get(parts[at]!);
    if (own && visit(own, request, parts, at + 1, takesEmpty, found)) return true;
    // Some routers take an empty segment for a parameter, but none takes the end of a path after its last slash.
    const isSegment = parts[at] !== "" || (takesEmpty && at + 1 < parts.length);
    if (any && isSegment && visit(any, request, parts, at + 1, takesEmpty, found)) return true;
  }
  return hits(prefix, request, found);
}

function hits(entries: readonly Entry[], request: Matched, found: Found): boolean {
  for (const { pattern, place } of entries) if (matches(pattern, request) && found(place)) return true;
  return false;
}

function matches({ methods, headers, scoreBelow }: Pattern, request: Matched): boolean {
  const { method, botScore } = request;
  // A server answers HEAD as it would GET.
  const isMethod = methods.length === 0 || methods.includes(method) || (method === "HEAD" && methods.includes("GET"));
  const isScore = scoreBelow === undefined || (botScore !== undefined && botScore < scoreBelow);
  return isMethod && isScore && headers.every((name) => request.has(name));
}
