import { ran } from "../gate";

export const getServerSideProps = (): object => (ran("account"), { props: {} });

export default function Page() {
  return <p>account</p>;
}
