type Verdict = { allowed: boolean; limited: boolean; retryAfterMs: number; headers: Record<string, string>; http?: any; response?: Response; onto(response: Response): Response };

export declare class Tidegate {
  constructor(options: object);
  static fromEnv(options: object, env?: object): Tidegate;
  check(request: unknown, options?: object): Promise<Verdict>;
  limit(keys: unknown): Promise<Verdict>;
  settle(verdict: unknown, options: object): Promise<void>;
}

export declare class Gate {
  static fromRules(rules: object, options: { platform: string; stores: Record<string, (limit: any) => Tidegate> }): Gate;
  check(request: unknown, options?: object): Promise<Verdict>;
}
