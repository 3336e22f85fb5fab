import type * as glue from "#upstash/glue";

/** The WebAssembly of one store, running. */
export type Engine = Pick<typeof glue, "Gate" | "undecided">;

/** Starts it. There is nothing to wait for: the module is compiled, or small enough to be compiled at once. */
export function start(module: WebAssembly.Module, imports: typeof glue): Engine {
  const { exports } = new WebAssembly.Instance(module, { a: { ...imports } });
  imports.start(exports);
  return imports;
}
