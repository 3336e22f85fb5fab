// Finds the most specific rule of a request.

import { KEPT, segments } from "./path.js";
import { type Pattern, specificity } from "./pattern.js";

/** What rules match of a request. */
export interface Matched {
  readonly method: string;
  /** In lower case, without a port. Empty if there is none. */
  readonly host: string;
  readonly botScore: number | undefined;
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

type Found = (place: number) => boolean;

/** The rules by host, then by path. */
export class Matcher {
  readonly #any = tree();
  readonly #exact = new Map<string, Tree>();
  /** By the end of the host, without the dot in front. */
  readonly #below = new Map<string, Tree>();

  /** Adds the rule at a place after all that were added before. */
  add(pattern: Pattern, place: number): void {
    const { host, path } = pattern;
    let node = host.kind === "any" ? this.#any : child(host.kind === "exact" ? this.#exact : this.#below, host.name);
    for (const segment of path.segments) node = segment === undefined ? (node.any ??= tree()) : child(node.literal, segment);
    const entries = path.isPrefix ? node.prefix : node.here;
    const later = entries.findIndex((entry) => specificity(entry.pattern) < specificity(pattern));
    entries.splice(later < 0 ? entries.length : later, 0, { pattern, place });
  }

  /** Calls `found` with each rule for a request, if its path is read so, most specific first, until it returns true. */
  visit(request: Matched, path: string, found: Found): void {
    const parts = segments(path, KEPT);
    const visits = (tree: Tree | undefined) => tree !== undefined && visit(tree, request, parts, 0, found);
    if (this.#exact.size + this.#below.size > 0) {
      const { host } = request;
      if (visits(this.#exact.get(host))) return;
      for (let dot = host.indexOf("."); dot >= 0; dot = host.indexOf(".", dot + 1)) {
        if (visits(this.#below.get(host.slice(dot + 1)))) return;
      }
    }
    visits(this.#any);
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
function visit({ literal, any, here, prefix }: Tree, request: Matched, parts: readonly string[], at: number, found: Found): boolean {
  if (at === parts.length) {
    if (hits(here, request, found)) return true;
  } else {
    const own = literal.get(parts[at]!);
    if (own && visit(own, request, parts, at + 1, found)) return true;
    // Routers take an empty segment for a parameter, but not the end of a path after its last slash.
    const isSegment = parts[at] !== "" || at + 1 < parts.length;
    if (any && isSegment && visit(any, request, parts, at + 1, found)) return true;
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
