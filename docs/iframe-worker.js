/* Search for pages that are read from the disk: a browser starts no worker for them, so a hidden frame does its work. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>search</title>";
      this.started = new Promise((resolve, reject) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          // What the script posts is meant for the page, not for its own window.
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.addEventListener("load", () => resolve(inside));
          script.addEventListener("error", () => reject(new Error(`${address} cannot be loaded`)));
          script.src = address;
          inside.document.body.append(script);
        }, { once: true });
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.started.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
