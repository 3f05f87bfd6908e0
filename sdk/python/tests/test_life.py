"""Several tasks at once, calls to stop, and the end."""

from __future__ import annotations

import unittest

from .child import Child
from .test_child import ECHO, HEAD, handler

#: Every task waits until as many as there are slots are in hand.
MEET = HEAD + """
meet = threading.Barrier(3)
def handle(task: Task) -> object:
    meet.wait(20)
    return task.payload
serve(handle)
"""
MEET_ASYNC = HEAD + """
here = []
async def handle(task: Task) -> object:
    here.append(task)
    while len(here) < 3: await asyncio.sleep(0.001)
    return task.payload
serve(handle)
"""
#: Says that it began, and goes on until it is told to stop.
WAIT = HEAD + """
def handle(task: Task) -> object:
    task.progress("began")
    while task.payload == "wait":
        task.cancelled.wait(60)
        task.check()
    if task.payload == "stubborn": threading.Event().wait()
    task.cancelled.wait(60)
    return "stopped"
serve(handle)
"""
WAIT_ASYNC = HEAD + """
class Handler:
    async def __call__(self, task: Task) -> object:
        task.progress("began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if task.payload == "wait": raise
            if task.payload == "stubborn": await asyncio.sleep(60)
            return "stopped"
serve(Handler())
"""
BEGAN = {"progress": "began"}


class Slots(unittest.TestCase):
    def test_as_many_tasks_as_slots_run_at_once(self) -> None:
        for code in (MEET, MEET_ASYNC):
            with Child(code, slots=3) as child:
                for number in (1, 2, 3):
                    child.task(number)
                self.assertEqual(child.hear_all(3), {n: {"done": n} for n in (1, 2, 3)})

    def test_one_slot_runs_on_the_main_thread(self) -> None:
        with Child(handler("return threading.current_thread() is threading.main_thread()")) as child:
            self.assertEqual(child.ask(), {"done": True})

    def test_lines_of_many_threads_stay_whole(self) -> None:
        body = "for n in range(50): task.progress(str(n) + 'x' * 250)\nreturn 'y' * 200_000"
        with Child(handler(body), slots=4) as child:
            for _ in range(4):
                child.task()
            said = [child.hear() for _ in range(4 * 51)]
            self.assertEqual(sum("done" in one for one in said), 4)
            for request in (1, 2, 3, 4):
                ours = [one for one in said if one["request"] == request and "progress" in one]
                self.assertEqual([one["progress"].rstrip("x") for one in ours], [str(n) for n in range(50)])


class Forks(unittest.TestCase):
    def test_a_signal_to_a_process_that_a_handler_forked_is_its_own(self) -> None:
        body = """
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(writer, b"up")
    time.sleep(60)
    os._exit(0)
os.read(reader, 2)
os.kill(pid, 15)
return os.WTERMSIG(os.waitpid(pid, 0)[1])
"""
        with Child(handler(body)) as child:
            self.assertEqual(child.ask(), {"done": 15})
            self.assertEqual(child.ask(), {"done": 15}, "and is none to us")

    def test_a_pool_of_forks_ends_and_the_child_goes_on(self) -> None:
        body = """
import multiprocessing
with multiprocessing.get_context("fork").Pool(3) as pool:
    return pool.map(abs, [-1, 2])
"""
        for slots in (1, 2):
            with Child(handler(body), slots=slots) as child:
                for _ in range(5):
                    self.assertEqual(child.ask(), {"done": [1, 2]})


class Cancel(unittest.TestCase):
    def test_a_run_that_is_called_off_stops_and_the_others_go_on(self) -> None:
        for code in (WAIT, WAIT_ASYNC):
            with Child(code, slots=2) as child:
                first, second = child.task("wait"), child.task("return")
                self.assertEqual(child.hear_all(2), {first: BEGAN, second: BEGAN})
                child.say({"cancel": first})
                self.assertEqual(child.hear(), {"request": first, "retry": {"error": "called off"}})
                child.say({"cancel": second})
                self.assertEqual(child.hear(), {"request": second, "done": "stopped"})

    def test_a_run_that_is_called_off_before_it_begins_is_answered(self) -> None:
        called_off = {"retry": {"error": "called off"}}
        with Child(WAIT) as child:
            self.assertEqual(child.ask("return"), BEGAN)
            child.task("return")
            child.say({"cancel": 2})
            child.say({"cancel": 1})
            self.assertEqual(child.hear_all(2), {1: {"done": "stopped"}, 2: called_off})
        with Child(HEAD + "async def h(task): await asyncio.sleep(60)\nserve(h)", hello=False) as child:
            child.write(b'{"hello":{"protocol":1,"agent":"words","slots":1}}\n' + child.task_line() + b'{"cancel":1}\n')
            self.assertEqual(child.hear(), {"ready": True})
            self.assertEqual(child.hear(), {"request": 1, **called_off})


class End(unittest.TestCase):
    def test_with_nothing_in_hand_it_ends_at_once(self) -> None:
        asynchronous = HEAD + "async def h(task): return 1\nserve(h)"
        for code in (ECHO, asynchronous):
            for stop in (Child.close, Child.terminate):
                with Child(code, slots=2) as child:
                    child.ask()
                    stop(child)
                    self.assertEqual(child.ended(), 0, child.errors())

    def test_end_of_input_before_the_hello_ends_it(self) -> None:
        with Child(ECHO, hello=False) as child:
            child.close()
            self.assertEqual(child.ended(), 0)

    def test_a_task_that_came_last_is_answered(self) -> None:
        with Child(handler("task.progress('began')\nreturn 1")) as child:
            child.task()
            child.close()
            self.assertEqual(child.hear(), {"request": 1, **BEGAN})
            self.assertEqual(child.hear(), {"request": 1, "done": 1})
            self.assertEqual(child.ended(), 0)

    def test_running_tasks_are_called_off_and_handed_back(self) -> None:
        handed_back = {"throttled": {"error": "called off: its child ends", "after_ms": 100}}
        for code in (WAIT, WAIT_ASYNC):
            for stop in (Child.close, Child.terminate):
                with Child(code, slots=2) as child:
                    child.task("wait")
                    child.task("return")
                    self.assertEqual(child.hear_all(2), {1: BEGAN, 2: BEGAN})
                    stop(child)
                    self.assertEqual(child.hear_all(2), {1: handed_back, 2: {"done": "stopped"}})
                    self.assertEqual(child.ended(), 0, child.errors())

    def test_a_run_that_does_not_stop_does_not_keep_it(self) -> None:
        for code in (WAIT, WAIT_ASYNC):
            with Child(code) as child:
                child.task("stubborn")
                child.hear()
                child.terminate()
                self.assertEqual(child.ended(), 1)
                self.assertIn("1 tasks did not stop in time", child.errors())

    def test_what_follows_serve_is_done(self) -> None:
        with Child(ECHO + "\nprint('closing')") as child:
            child.close()
            self.assertEqual(child.ended(), 0)
            self.assertIn("closing", child.errors())
