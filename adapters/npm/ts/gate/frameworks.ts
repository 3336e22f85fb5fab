// How frameworks route: which paths they take for the same.

import { isNormal, joined, readings, WHOLE } from "./rules/path.js";

/** What routes the requests of an application. */
export type Framework = keyof typeof FRAMEWORKS;

interface Habits {
  /** Whether its routes ignore upper and lower case, by default. */
  readonly ignoresCase: boolean;
  /** The paths whose route it runs for a path, if that is another one. `query` begins with `?`, or is empty. */
  routed?(path: string, query: string): readonly string[];
}

/** How often escapes of escapes are decoded at most. Astro refuses more. */
const DECODINGS_MAX = 10;

/** A path whose last parameter is empty: here it is a text that is no route's. */
const withEmpty = (path: string): string[] => (path.endsWith("/") ? [`${path}%00`] : []);

/** Slashes at the end and double slashes are among the readings of each path. */
export const FRAMEWORKS = {
  express: { ignoresCase: true },
  // A mount of Connect ends at a dot, too. Polka leaves out a slash at the end and no other, so that a parameter may be empty.
  connect: {
    ignoresCase: true,
    routed: (path) => {
      const own = path.replace(/\/$/, "");
      return [path.replace(/\./g, "/."), own, ...withEmpty(own)];
    },
  },
  koa: { ignoresCase: true },
  // Fastify 4 ends a path at a semicolon. In all versions, a parameter at the end may be empty.
  fastify: { ignoresCase: false, routed: (path) => [path, path.split(";", 1)[0]!].flatMap((path) => [path, ...withEmpty(path)]) },
  hono: { ignoresCase: false },
  // The browser gets the data of a page from other paths. In `/shop/..rsc`, the parameter is a dot, which is no longer in the URL.
  next: {
    ignoresCase: false,
    routed: (path) => pagesOfNext(path).flatMap((page) => [page, ...(page === path ? [] : [page.replace(/\/index$/, "/")]), ...withEmpty(page)]),
  },
  sveltekit: { ignoresCase: false, routed: (path) => [path.replace(/\/__data\.json$/, "/").replace(/\.html__data\.json$/, ".html")] },
  "react-router": { ignoresCase: true, routed: (path) => [path.replace(/\/_(?:root)?\.data$/, "/"), path.replace(/\.data$/, "")] },
  // Vue Router ignores case, and Nitro does not. Nitro decodes a path before it looks for `?`, and Vue Router looks for `#` in what it gets.
  nuxt: {
    ignoresCase: true,
    routed: (path) => [/$/, /%3f.*/is, /%(3f|23).*/is].map((end) => path.replace(end, "").replace(/\/_payload\.js(on)?$/, "/")),
  },
  // An action runs on any page. Pages are files, too, and escapes are decoded as often as there are any.
  astro: {
    ignoresCase: false,
    routed: (path, query) => {
      const action = new URLSearchParams(query).get("_action");
      const page = fullyDecoded(path);
      return [page, page.replace(/\/index\.html$/, "/").replace(/\.html$/, ""), ...(action ? [`/_actions/${action}`] : [])];
    },
  },
} as const satisfies Readonly<Record<string, Habits>>;

/** What a framework runs for a path with its query: the path itself, and others. */
export function routedBy(framework: Framework, path: string): readonly string[] {
  const { routed }: Habits = FRAMEWORKS[framework];
  if (!routed) return [path];
  const [, own, query] = /^([^?#]*)([^#]*)/.exec(path)!;
  const all = [path, ...routed(own!, query!)];
  // The normal form comes first. A router may find what it looks for only there.
  if (!isNormal(own!)) readings(own!, WHOLE, (normal) => all.push(...routed(joined(normal), query!)) > 0);
  return [...new Set(all)];
}

/** The pages of whose data these are paths in Next.js. A client chooses how long a path is, so no expression may look at it for each of its parts. */
function pagesOfNext(path: string): string[] {
  if (path.endsWith(".json")) {
    const page = path.replace(/\/_next\/data\/[^/]+(?=\/)/, "");
    return page === path ? [path] : [page.slice(0, -".json".length)];
  }
  if (path.endsWith(".segment.rsc")) return [path.indexOf(".segments/"), path.lastIndexOf(".segments/")].map((at) => path.slice(0, Math.max(at, 0)));
  return [path.replace(/(?:\.prefetch)?\.rsc$/, "")];
}

/** A path without escapes of escapes. */
function fullyDecoded(path: string): string {
  let decoded = path;
  try {
    for (let nth = 0; nth < DECODINGS_MAX && decoded.includes("%"); nth++) decoded = decodeURI(decoded);
  } catch {
    // It ends where it can no longer be decoded.
  }
  return decoded;
}
