import { ran } from "../../../gate";

export const dynamic = "force-dynamic";

export default function Page() {
  ran("item");
  return <p>item</p>;
}
