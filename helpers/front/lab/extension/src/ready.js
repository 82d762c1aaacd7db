// Cells that are run before their kernel is there: JupyterLab empties them and says nothing, so that who presses Run All as soon as a
// lesson is open sees nothing happen. They wait until it has started.

const RUNS = /^notebook:run-/;
const LONGEST = 30_000; // milliseconds that a command waits: a kernel that has not started by then will not

/** Commands that run cells of the current notebook wait while its kernel starts; one that runs all waits once, however often it is given. */
export function waitForKernels(commands, tracker) {
  const execute = commands.execute.bind(commands);
  const waiting = new WeakMap(); // by session: command -> what it comes to
  commands.execute = (id, args) => {
    const context = tracker.currentWidget?.sessionContext;
    if (!RUNS.test(id) || !context || context.isReady || context.kernelDisplayStatus !== "initializing") {
      return execute(id, args);
    }
    const given = waiting.get(context) ?? new Map();
    waiting.set(context, given);
    if (id === "notebook:run-all-cells" && given.has(id)) {
      return given.get(id);
    }
    const late = new Promise((resolve) => setTimeout(resolve, LONGEST));
    const result = Promise.race([context.ready, late]).then(() => {
      given.delete(id);
      return context.isDisposed ? undefined : execute(id, args);
    });
    given.set(id, result);
    return result;
  };
}
