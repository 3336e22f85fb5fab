// The files that build.sh writes to dist/<store>.

declare module "#*/module" {
  const module: WebAssembly.Module;
  export default module;
}

declare module "#*/glue" {
  type Engine = import("./glue.js").Engine;
  export const Gate: Engine["Gate"];
  export const undecided: Engine["undecided"];
  export function start(exports: WebAssembly.Exports): void;
}
