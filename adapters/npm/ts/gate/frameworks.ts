// How frameworks route: which paths they take for the same.

import { readings } from "./rules/path.js";

/** What routes the requests of an application. */
export type Framework = keyof typeof FRAMEWORKS;

interface Habits {
  /** Whether its routes ignore upper and lower case, by default. */
  readonly ignoresCase: boolean;
  /** The paths whose route it runs for a path, if that is another one. `query` begins with `?`, or is empty. */
  routed?(path: string, query: string): readonly string[];
}

/** Slashes at the end and double slashes are among the readings of each path. */
export const FRAMEWORKS = {
  express: { ignoresCase: true },
  // A mount of Connect ends at a dot, too.
  connect: { ignoresCase: true, routed: (path) => [path.replace(/\./g, "/.")] },
  koa: { ignoresCase: true },
  // Fastify 4 ends a path at a semicolon. In all versions, a parameter at the end may be empty: here it is any text that is no route's.
  fastify: { ignoresCase: false, routed: (path) => [path, path.split(";", 1)[0]!].flatMap((path) => [path, path.replace(/\/$/, "/%00")]) },
  hono: { ignoresCase: false },
} as const satisfies Readonly<Record<string, Habits>>;

/** What a framework runs for a path with its query: the path itself, and others. */
export function routedBy(framework: Framework, path: string): readonly string[] {
  const { routed }: Habits = FRAMEWORKS[framework];
  if (!routed) return [path];
  const [, own, query] = /^([^?#]*)([^#]*)/.exec(path)!;
  const all = [path, ...routed(own!, query!)];
  // The normal form comes first. A router may find what it looks for only there.
  readings(own!, (normal) => all.push(...routed(normal, query!)) > 0);
  return [...new Set(all)];
}
