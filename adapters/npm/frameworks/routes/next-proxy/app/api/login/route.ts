import { ran } from "../../../gate";

export const dynamic = "force-dynamic";
export const GET = (): Response => (ran("login"), new Response("login"));
