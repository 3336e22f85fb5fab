import { TidegateError } from "../error.js";

/** What a store's module exports: the module that a bundler has compiled, or a function that compiles it. */
export type Loaded = WebAssembly.Module | (() => WebAssembly.Module);

/** Starts the WebAssembly at once: the module is compiled already, or small enough to be compiled synchronously. */
export function start<E extends object>(loaded: Loaded, imports: E & { start(exports: WebAssembly.Exports): void }): E {
  try {
    const module = typeof loaded === "function" ? loaded() : loaded;
    const { exports } = new WebAssembly.Instance(module, { a: imports as unknown as WebAssembly.ModuleImports });
    imports.start(exports);
    return imports;
  } catch (cause) {
    throw new TidegateError("unsupported", cannotStart(typeof loaded, cause), undefined, { cause });
  }
}

function cannotStart(kind: string, cause: unknown): string {
  const why =
    kind === "function"
      ? `this runtime does not compile WebAssembly from bytes; bundle with the export condition "workerd" or "edge-light"`
      : `the bundler did not load "tidegate.wasm?module" as a WebAssembly module`;
  return `${why}; see "WebAssembly" in the README of @tidegate/edge (${String(cause)})`;
}
