import type { Gate, Tidegate } from "./limiter.js";

type Options = { check?: (...received: any[]) => unknown; peer?: (...received: any[]) => unknown };

export declare function limit<_Request = any, _Event = any>(tidegate: Tidegate | Gate, options?: Options): (...received: any[]) => any;
export declare function limit<Handler extends (...received: any[]) => any>(tidegate: Tidegate | Gate, handler: Handler, options?: Options): Handler;
export declare function limitRoute(tidegate: Tidegate | Gate, options?: Options): (...received: any[]) => any;
