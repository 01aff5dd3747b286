"""Decides for the whole cluster which run starts, resumes, is watched or stops, or refuses it."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.utils.vars import load_extra_vars

from psfleet.evidence.runs_directory import newest_first
from psfleet.inventory.variables import PREFIX
from psfleet.run.active_runs import (
    RefusedError,
    checked_run_id,
    run_to_stop,
    tasks_elsewhere,
    tasks_to_stop,
    unstopped_message,
)
from psfleet.run.folder import (
    hosts_may_delete,
    lacks_files,
    make_folder,
    new_run_names,
    run_for_playbooks,
    saved_run,
    saved_settings,
    state_of,
    tasks_of_run,
)
from psfleet.run.person import beginning
from psfleet.run.places import absent_workers, dispensable_tasks, is_elastic, leaving_workers
from psfleet.run.settings import (
    can_resize,
    carried_model,
    older_model_note,
    older_program_note,
    resumed_settings,
    with_requirements_of_today,
)
from psfleet.run.start import Folder, decide, hindrances
from psfleet.watch.exports import (
    export_description,
    is_exported,
    require_exporting_host,
    require_host,
    run_to_export,
)
from psfleet.watch.hints import with_inventory
from trainer.contract.json_files import read_object
from trainer.contract.plan import ClusterPlan
from trainer.host.wording import first_of

from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.asked_hosts import ask_hosts


class ActionModule(ControllerAction):
    """Returns `run`, the run that starts, stops or is exported, or fails with every reason against it.

    Arguments: `state`, `run_id`, `runs_directory`, and `found`, {host: answer to trainer_tasks}. In each
    state, `run` has `id`, `folder`, `settings`, `tasks` and `lead`, and what follows.

    With the state `started`, a `run_id` of "" means a new run:

    - `action`: what `decide` returned, "start", "attach" or "collect"; "recollect" for a run that has ended
      and left files on hosts, which is only collected again.
    - `starting`: the tasks that start. If the run is going on, these are the workers that are absent and can
      join.
    - `empty`: the names of the tasks that do not take part now.
    - `told`: a text for people about both, "" if there is nothing to say.
    - `collected`, beside `run`: the ids of the cluster's runs that hosts may delete, the newest first.

    With `stopped`, a `run_id` of "" means the run that is going on; `run` is {"id": ""} if none is:

    - `tasks`: the tasks to stop. `told`: how to resume the run. `warning`: a text about tasks on hosts that
      cannot be reached, "" for none.
    - `goes_on`: True with --limit, else False. If True, `tasks` are the workers that leave the run.

    With `exported`, a `run_id` of "" means the newest run; `model`, `inputs` and `outputs` are for a program.
    `found` is not needed, because this asks the host of the `exporter`:

    - `action`: "export", or "present" if the export exists already.
    - `deployed`: the `release` and the `environment` on that host. `looked`: the moment of its answer.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        decide_for = {
            "stopped": self._decide_stop,
            "started": self._decide_start,
            "exported": self._decide_export,
        }
        return decide_for[arguments["state"]](arguments)

    def _decide_stop(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        limited = bool(self.variables.get("ansible_limit"))
        hosts = arguments["found"] | (self._answers_of_others() if limited else {})
        try:
            run_id = run_to_stop(hosts, str(arguments["run_id"]))
            if not run_id:
                return {"run": {"id": ""}}
            return {"run": self._run_to_stop(run_id, arguments, hosts if limited else None)}
        except RefusedError as refused:
            return self._failure("\n".join(refused.problems))

    def _run_to_stop(
        self, run_id: str, arguments: Mapping[str, Any], everywhere: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the run that ends, or that workers leave, with the class's fields for the state "stopped".

        `everywhere` is {host: its answer} for the whole cluster with --limit, else None. Raises RefusedError.
        """
        hosts, again = arguments["found"], f"ansible-playbook train.yml -e run_id={run_id}"
        folder = Path(arguments["runs_directory"]).resolve() / run_id
        try:
            settings, tasks = saved_run(folder)
        except (KeyError, ValueError):  # it was started elsewhere: use today's settings
            if everywhere is not None:
                what = f"run {run_id} was not begun here, so what it needs to end well is not known"
                raise RefusedError(f"{what}; type stop.yml --limit where it began") from None
            settings = self.variables["cluster_settings"]
            tasks = tasks_of_run(self.variables["cluster_plan"], settings)
        ending, message = tasks, f"Run {run_id} is stopped. Resume with: {again}"
        if everywhere is not None:
            limited = self.variables["ansible_play_hosts_all"]
            ending = leaving_workers(run_id, tasks, settings, limited, everywhere)
            names = first_of([task["name"] for task in ending])
            message = f"{names} left run {run_id}, which goes on. To join it again: {again}"
        return run_for_playbooks(folder, settings, tasks) | {
            "tasks": tasks_to_stop(run_id, ending, hosts),
            "warning": unstopped_message(ending, hosts),
            "goes_on": everywhere is not None,
            "told": with_inventory(message, self.variables["ansible_inventory_sources"]),
        }

    def _answers_of_others(self) -> dict[str, dict[str, Any]]:
        """Return {host: its answer to trainer_tasks} for the cluster's hosts that --limit leaves out.

        Hosts without an answer are missing.
        """
        limited, known = self.variables["ansible_play_hosts_all"], self.variables["hostvars"]
        hosts = {str(task["host"]) for task in self.variables["cluster_plan"]["tasks"]}
        query = {"tasks": [], "others": True, "paths": self.variables["cluster_paths"]}
        others = {host: query for host in sorted(hosts.difference(limited)) if host in known}
        answers = ask_hosts(self, "trainer_tasks", others)
        return {host: answer for host, answer in answers.items() if not answer["problem"]}

    def _decide_export(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            folder = run_to_export(Path(arguments["runs_directory"]).resolve(), str(arguments["run_id"]))
            settings, tasks = saved_run(folder)
            run = run_for_playbooks(folder, settings, tasks)
            names = (str(arguments.get(name, "")) for name in ("model", "inputs", "outputs"))
            run |= export_description(run, *names)
            if is_exported(run):
                return {"run": run | {"action": "present"}}
            return {"run": run | {"action": "export"} | self._deployed_on_exporter(run)}
        except RefusedError as refused:
            return self._failure("Nothing was exported:\n- " + "\n- ".join(refused.problems))
        except (KeyError, ValueError) as error:
            what = f"settings.json or plan.json in {folder} is missing or damaged: {error}"
            return self._failure(f"Nothing was exported:\n- {what}")
        except OSError as error:
            return self._failure(f"Nothing was exported:\n- {error.filename}: {error.strerror}")

    def _deployed_on_exporter(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the host that exports a run; return `deployed`, its hashes `release` and `environment`.

        The result also has `looked`, the moment of the answer on the host's own clock. Raises RefusedError if
        the host cannot export the run.
        """
        host, plan = str(run["exporter"]["host"]), self.variables["cluster_plan"]
        require_host(run, self.variables["ansible_play_hosts_all"], self.variables["hostvars"])
        query = {"tasks": [], "others": True, "run_id": run["id"], "plan_hash": plan["hash"]}
        query["paths"] = self.variables["cluster_paths"]
        answer = ask_hosts(self, "trainer_tasks", {host: query})[host]
        require_exporting_host(run, answer, plan)
        return {
            "looked": answer["looked"],
            "deployed": {name: answer[name] for name in ("release", "environment")},
        }

    def _decide_start(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            run_id = str(arguments["run_id"])
            run = self._decide_run(run_id, arguments) if run_id else self._decide_new_run(arguments)
        except RefusedError as refused:
            return self._failure("The run cannot start:\n- " + "\n- ".join(refused.problems))
        except OSError as error:
            return self._failure(f"{error.filename}: {error.strerror}")
        folders = newest_first(Path(run["folder"]).parent)
        cluster = self.variables["cluster_plan"]["cluster_name"]
        return {"run": run, "collected": [each.name for each in folders if hosts_may_delete(each, cluster)]}

    def _decide_new_run(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a run with a name that neither a host nor another run on the controller has.

        Its folder is created, except in check mode. Raises RefusedError and OSError.
        """
        tasks = [task for answer in arguments["found"].values() for task in answer["tasks"]]
        run_ids_on_hosts = {task["run_id"] for task in tasks}
        now = datetime.now(tz=timezone.utc)
        for run_id in new_run_names(self.variables["cluster_plan"]["cluster_name"], now):
            folder = Path(arguments["runs_directory"]).resolve() / run_id
            if run_id in run_ids_on_hosts or folder.exists():
                continue
            run = self._decide_run(run_id, arguments)
            try:
                if not self._task.check_mode:
                    make_folder(folder, exist_ok=False)
                return run
            except FileExistsError:
                if not folder.exists():  # the folder of all runs is a file
                    raise
        raise AssertionError

    def _decide_run(self, run_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        plan, today = self.variables["cluster_plan"], self.variables["cluster_settings"]
        folder = Path(arguments["runs_directory"]).resolve() / checked_run_id(run_id)
        try:
            begun = saved_settings(folder)
            if begun:
                programs = self.variables.get("cluster_programs", ())
                begun["program"] = with_requirements_of_today(begun.get("program"), programs)
            tasks = tasks_of_run(plan, begun or today)
        except (KeyError, ValueError) as error:
            raise RefusedError(f"{folder / 'settings.json'} is damaged: {error}") from error
        if begun and lacks_files(folder):
            next_step = "What was left on hosts is collected, and the run judged again."
            message = f"Run {run_id} has ended. {next_step}"
            recollect = {"action": "recollect", "starting": [], "empty": [], "told": message}
            return run_for_playbooks(folder, *saved_run(folder)) | recollect
        settings, begun_on = begun or today, read_object(folder / "plan.json")
        hosts = arguments["found"]
        others = self._answers_of_others() if self.variables.get("ansible_limit") else {}
        of_folder = Folder(
            state_of(folder),
            str(begun_on.get("hash", "")),
            settings["program"],
            carried_model(settings),
            begun_on.get("tasks", ()),
            can_resize(settings),
            dispensable_tasks(run_id, tasks, settings, hosts, others),
        )
        if not begun and (names := today.get("unchosen")):
            what = "trainer_programs has several programs, and a run trains one"
            raise RefusedError(f"{what}: choose one with -e program=...: {', '.join(names)}")
        action = decide(run_id, plan, tasks, hosts, of_folder)
        settings = today
        if begun:
            chosen = [name.removeprefix(PREFIX) for name in load_extra_vars(self._loader)]
            try:
                settings = resumed_settings(
                    ClusterPlan.from_json(plan), begun, today, chosen if action == "start" else ()
                )
            except (KeyError, ValueError) as error:
                what = f"run {run_id} cannot go on with the settings it began with: {error}"
                raise RefusedError(what) from error
        run = run_for_playbooks(folder, settings, tasks) | {"action": action}
        run |= self._tasks_to_start(run, begun, hosts)
        programs = self.variables.get("cluster_programs", ())
        older = begun and (older_program_note(begun["program"], programs) or older_model_note(begun, today))
        if action == "start" and older:
            run["told"] = "\n".join(filter(None, [f"Run {run_id} goes on with {older}", run["told"]]))
        if action == "start":
            by, now = self.variables["cluster_person"], datetime.now(tz=timezone.utc)
            run["settings"]["begun"] = beginning(run["settings"], by, now)
        return run

    def _tasks_to_start(
        self, run: Mapping[str, Any], begun: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return {`starting`: ..., `empty`: ..., `told`: ...}, as the class describes these fields.

        `begun` are the settings with which the run began; {} for a new run, or one that began on another
        controller. Workers can join a run only from the controller where it began.
        """
        run_id, tasks = run["id"], run["tasks"]
        out = [task for task in tasks if task["host"] not in hosts]
        starting = [task for task in tasks if run["action"] == "start" and task["host"] in hosts]
        messages = []
        if run["action"] == "attach" and begun and is_elastic(begun):
            plan = self.variables["cluster_plan"]
            for task in absent_workers(run_id, tasks, hosts):
                if why := hindrances(plan, tasks, task["host"], hosts):
                    out.append(task)
                    messages.append(f"{task['name']} on {task['host']} cannot join: {'; '.join(why)}")
                else:
                    starting.append(task)
                    messages.append(f"{task['name']} on {task['host']} joins run {run_id}.")
        elif out and run["action"] == "start":
            names = tasks_elsewhere(tasks, hosts)
            fill = f"ansible-playbook train.yml -e run_id={run_id}"
            messages = [f"Run {run_id} begins without {names}. Once its host is there, it joins by: {fill}"]
        message = with_inventory("\n".join(messages), self.variables["ansible_inventory_sources"])
        return {"starting": starting, "empty": [task["name"] for task in out], "told": message}
