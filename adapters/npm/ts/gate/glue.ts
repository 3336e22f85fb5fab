// What the WebAssembly of the gate offers.

/** A gate of `src/rules.rs`. */
export interface RulesGate {
  read(file: string, text: string): string;
  store(place: number, numbers: Uint32Array, formula: string): void;
  load(): string;
  seed(random: Uint8Array, every: number): void;
  shadows(): string;
  caller(): RulesCaller;
}

/** Makes calls, one after another. */
export interface RulesCaller {
  tell(what: number, text: string): void;
  key(dimension: string, key: string): void;
  numbers(botScore: number, cost: number, isEstimate: boolean, needsPeer: boolean): void;
  check(method: string, url: string, fields: string, now: number, explains: boolean): string;
  settle(token: string, places: Uint32Array, keys: string, cost: number, now: number): string;
  decided(numbers: Float64Array): string;
  told(text: string): string;
  failed(kind: string, message: string): string;
}

/** The running WebAssembly. */
export interface RulesEngine {
  RulesGate: new (stores: string, platform: string, ipv6Prefix: number, trustTrueClientIp: boolean, settleWithinMs: number) => RulesGate;
}
