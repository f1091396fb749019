// Search from a folder. A browser starts no Worker from file://, so a hidden frame runs its script instead.
// Zensical would load a shim named iframe-worker from the net; it leaves that out where one of this name is given.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    onmessage = null;

    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc =
        `<script>postMessage = data => parent.postMessage(data, "*")</script><script src="${new URL(url, location)}"></script>`;
      this.ready = new Promise(resolve => this.frame.addEventListener("load", resolve));
      this.receive = event => {
        if (event.source === this.frame.contentWindow) this.onmessage?.(event);
      };
      addEventListener("message", this.receive);
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      removeEventListener("message", this.receive);
      this.frame.remove();
    }
  };
}
