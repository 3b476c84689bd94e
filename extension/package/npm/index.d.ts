/** The path of lm0.so. Throws where there is none for this platform. */
export function getLoadablePath(): string;

/** Loads the extension into a database of better-sqlite3, node:sqlite ({allowExtension: true}) or Bun. */
export function load(db: { loadExtension(path: string): unknown; enableLoadExtension?(allow: boolean): unknown }): void;
