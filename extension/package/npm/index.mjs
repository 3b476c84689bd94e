import sqliteLm from "./index.cjs";

export const { getLoadablePath, load } = sqliteLm;
export default sqliteLm;
