/** The platform in front of the app. It determines where the client's address comes from. */
export type Platform = "cloudflare" | "vercel" | "netlify" | "fastly" | "spin" | "direct";

export const PLATFORMS = ["cloudflare", "vercel", "netlify", "fastly", "spin", "direct"] as const;

/** Who sent a request, as far as the app has verified it. */
export interface Identity {
  /** The subject (`sub`) of a token whose signature was verified. */
  subject?: string | undefined;
  /** A valid API key. Only its hash is stored. */
  apiKey?: string | undefined;
}
