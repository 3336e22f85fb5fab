import type * as glue from "#redis/glue";
import type { Engine } from "./glue.js";

/** Starts the WebAssembly at once: the module is compiled already, or small enough to be compiled synchronously. */
export function start(module: WebAssembly.Module, imports: typeof glue): Engine {
  const { exports } = new WebAssembly.Instance(module, { a: { ...imports } });
  imports.start(exports);
  return imports;
}
