// What the snippets of the READMEs leave out.

declare const Tidegate: typeof import("@tidegate/edge").Tidegate;
declare const url: string;
declare const token: string;
declare const tidegate: import("@tidegate/edge").Tidegate;
declare const options: import("@tidegate/edge").UpstashOptions;
declare const request: Request;
declare function app(request: Request): Promise<Response>;
declare function render(request: Request): Promise<Response>;
declare function complete(request: Request): Promise<{ answer: string; tokens: number }>;
declare function tokensIn(part: Uint8Array): number;
declare function session(request: Request): Promise<string>;
declare const Gate: typeof import("@tidegate/edge/gate").Gate;
declare const gate: import("@tidegate/edge/gate").Gate;
declare const gateOptions: import("@tidegate/edge/gate").GateOptions;
declare const rules: string;
declare const store: import("@tidegate/edge/store").VersionedStore;
