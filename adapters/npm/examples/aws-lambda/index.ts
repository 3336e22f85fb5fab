import { Tidegate } from "@tidegate/edge";
import type { APIGatewayProxyEventV2, APIGatewayProxyStructuredResultV2 } from "aws-lambda";

// The instances of a function share no memory, so they count in a store.
const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

// `identify` would read its fields.
const request = new Request("http://localhost");

export async function handler(event: APIGatewayProxyEventV2): Promise<APIGatewayProxyStructuredResultV2> {
  if (event.rawPath === "/") return { statusCode: 200, body: "home" };
  // API Gateway takes the address from the connection. For a user that you have verified: `limit("user:42")`.
  const { headers, http } = await tidegate.check(request, { peer: event.requestContext.http.sourceIp });
  if (http) return { statusCode: http.status, headers: http.headers, body: http.body };
  return { statusCode: 200, headers: { ...headers, "content-type": "text/plain" }, body: "hello" };
}
