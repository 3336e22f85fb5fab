/** A translated path leads to the route. */
export const reroute = ({ url }: { url: URL }): string | undefined => (url.pathname === "/konto" ? "/account" : undefined);
