import { Outlet, Scripts } from "react-router";
import type { Route } from "./+types/root";
import { limited } from "./limit.server";

export const middleware: Route.MiddlewareFunction[] = [limited];

export default function Root() {
  return (
    <html lang="en">
      <body>
        <Outlet />
        <Scripts />
      </body>
    </html>
  );
}
