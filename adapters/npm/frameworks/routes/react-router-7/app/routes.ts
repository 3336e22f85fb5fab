import { index, route, type RouteConfig } from "@react-router/dev/routes";

export default [
  index("routes/home.tsx"),
  route("api/login", "routes/login.ts"),
  route("account", "routes/account.tsx"),
  route("shop/:item", "routes/item.tsx"),
] satisfies RouteConfig;
