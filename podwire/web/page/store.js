// The state of the cluster as the server sends it: a snapshot, then changes. Views subscribe.

/** @typedef {{key: string, uid: string, level: number, status: string, ready: string, node?: string, ip?: string,
 *   restarts?: number, created?: string, why?: string, took?: number, traced?: boolean}} Pod */
/** @typedef {{pod: string, key: string, begin: number, last: number, took: number|null, calls: number, failures: number,
 *   failure: string}} Start */

export class Store {
  constructor() {
    /** @type {Map<string, Pod>} by UID */
    this.pods = new Map();
    /** @type {Map<string, any>} by name */
    this.nodes = new Map();
    /** @type {Map<string, Start>} by trace id */
    this.starts = new Map();
    /** @type {Record<string, string>} */
    this.troubles = {};
    this.connected = false;
    this.synced = false;
    /** @type {Set<(changed: Set<string>) => void>} */
    this.listeners = new Set();
    /** @type {EventSource|null} */
    this.source = null;
    this.waiting = null;
    this.changed = new Set();
  }

  /** Connects while the page is visible: hidden tabs hold no connection. */
  run() {
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    this.open();
  }

  open() {
    if (this.source !== null) return;
    const source = this.source = new EventSource("/api/events");
    source.addEventListener("snapshot", (event) => this.replace(JSON.parse(event.data)));
    source.addEventListener("change", (event) => this.apply(JSON.parse(event.data)));
    source.onopen = () => this.tell("connection", (this.connected = true));
    source.onerror = () => {
      this.tell("connection", (this.connected = false));
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        this.source = null;  // refused: too many pages, or the server was restarted with another token
        setTimeout(() => document.hidden || this.open(), 5000);
      }
    };
  }

  close() {
    this.source?.close();
    this.source = null;
    this.connected = false;
    this.tell("connection");
  }

  replace(snapshot) {
    this.pods = new Map(snapshot.pods.map((pod) => [pod.uid, pod]));
    this.nodes = new Map(snapshot.nodes.map((node) => [node.name, node]));
    this.starts = new Map(snapshot.starts.map((start) => [start.pod, start]));
    this.troubles = snapshot.troubles;
    this.synced = true;
    for (const start of this.starts.keys()) this.changed.add(start);
    this.tell("all");
  }

  apply(change) {
    for (const pod of change.pods) this.pods.set(pod.uid, pod);
    for (const uid of change.gone) this.pods.delete(uid);
    for (const node of change.nodes) this.nodes.set(node.name, node);
    for (const name of change.gone_nodes) this.nodes.delete(name);
    for (const start of change.starts) {
      this.starts.set(start.pod, start);
      this.changed.add(start.pod);
    }
    this.troubles = change.troubles;
    this.tell("all");
  }

  /** Tells listeners once a frame, however many messages came. */
  tell(what) {
    this.changed.add(what);
    if (this.waiting !== null) return;
    const now = () => {
      this.waiting = null;
      const changed = this.changed;
      this.changed = new Set();
      for (const listener of this.listeners) listener(changed);
    };
    this.waiting = setTimeout(now, 16);
  }

  /** @param {(changed: Set<string>) => void} listener @returns {() => void} */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
