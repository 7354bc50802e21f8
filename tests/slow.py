"""Tests that `make test` leaves out, and that `make test ARGS=--slow` and CI run.

Most show on more processes, on another machine or with larger arrays what others show, too; "here
alone" says what only the slow test shows. A test that is asked for by its name runs in any case.
"""

import fnmatch
import re

import pytest

OPTION = "--slow"

SLOW = {
    "tests/cli/test_matmul_files.py::test_arrays_larger_than_the_memory_of_a_process": (
        "test_two_processes_read_and_write_their_blocks, with small files"
    ),
    "tests/crosscheck/test_cli_crosscheck.py::test_compare": (
        "test_run.py::test_two_runtimes; the command runs here alone"
    ),
    "tests/crosscheck/test_draws.py::test_random_healthy_draws_pass": (
        "test_check.py, with chosen draws"
    ),
    "tests/crosscheck/test_faults.py::test_faults_are_named[layer_norm]": (
        "the same test with softmax"
    ),
    "tests/crosscheck/test_faults.py::test_faults_are_named[steps]": "the same test with heat",
    "tests/crosscheck/test_gradients.py::test_right_gradients": (
        "test_wrong_gradients_and_none; the programs with gradients"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[attention]": (
        "the same test with softmax"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[batched_matmul]": (
        "the same test with matmul"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[fft2]": (
        "the same test with fft"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[full_sum]": (
        "the same test with row_sum"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[gram]": (
        "the same test with matmul"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[layer_norm]": (
        "the same test with softmax"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[matmul_transposed]": (
        "the same test with matmul"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[perceptron_gradient]": (
        "the same test with perceptron"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_are_caught_and_named[sgd_step]": (
        "the same test with perceptron"
    ),
    "tests/crosscheck/test_mutants.py::test_mutants_of_two_processes": (
        "the mutants of one process; test_run.py, whose runs have two"
    ),
    "tests/doctor/test_deep.py::test_the_real_thing": (
        "test_deep.py, with stand-ins; `doctor --deep` multiplies here alone"
    ),
    "tests/examples/test_examples.py::test_results_are_those_of_plain_jax*": (
        "test_programs_with_an_oracle_are_cross_checked; all examples run here alone"
    ),
    "tests/gcloud/test_faithful.py::test_gcloud_gets_on_with_it": "test_we_ask_as_gcloud_does",
    "tests/gcloud/test_goldens.py::test_the_commands_of_the_docs_are_understood": (
        "the goldens of the same commands"
    ),
    "tests/gcloud/test_run.py::test_a_killed_launcher_ends_its_programs": (
        "test_an_ended_launcher_ends_its_programs, by SIGTERM; SIGKILL is sent here alone"
    ),
    "tests/gcloud/test_run.py::test_a_vm_that_goes_away[True]": "the same test with False",
    "tests/gcloud/test_run.py::test_a_worker_that_fails[255-1]": "the same test with fails-1",
    "tests/gcloud/test_run.py::test_an_ended_launcher_ends_its_programs[1]": (
        "the same test with 15, SIGTERM"
    ),
    "tests/gcloud/test_run.py::test_preemption_and_another_attempt": (
        "test_preemption_while_copying"
    ),
    "tests/jobs/test_laws.py::test_law[slurm-cancelled]": "the same law on this machine",
    "tests/jobs/test_laws.py::test_law[slurm-faults]": "the same law on this machine",
    "tests/jobs/test_laws.py::test_law[slurm-killed]": "the same law on this machine",
    "tests/jobs/test_laws.py::test_law[slurm-raises]": "the same law on this machine",
    "tests/jobs/test_tpu.py::test_a_value_larger_than_the_disk": "test_bad.py, on this machine",
    "tests/jobs/test_tpu.py::test_law[cancelled]": "the same law on this machine",
    "tests/jobs/test_tpu.py::test_the_logs_of_tpu_run": (
        "gcloud/test_run.py::test_ssh_and_logs_while_it_runs"
    ),
    "tests/launch/test_any_program.py::test_a_program_in_the_style_of_flax": (
        "the same in the style of levanter"
    ),
    "tests/launch/test_any_program.py::test_a_program_in_the_style_of_maxtext": (
        "the same in the style of levanter"
    ),
    "tests/multiprocess/test_divergence.py::test_divergence_is_named[jax-2]": (
        "the same test with numpy-4; test_divergence_in_a_collective_ends_every_process"
    ),
    "tests/multiprocess/test_hosts.py::test_cut_cable_ends_both_hosts": (
        "launch/test_two_hosts.py::test_a_cut_cable_ends_both_hosts"
    ),
    "tests/multiprocess/test_hosts.py::test_two_hosts": (
        "launch/test_two_hosts.py; test_programs.py"
    ),
    "tests/multiprocess/test_programs.py::test_programs[2x4]": (
        "the same test with 4x1; several outputs, and most pairs of specs, are tried here alone"
    ),
    "tests/pages/test_chromium.py::test_every_page_fits_every_screen": (
        "test_dark_and_closed_to_scripts; the widths of screens are tried here alone"
    ),
    "tests/programs/test_bodies.py::test_every_layout[*-cube]": "the same test with grid",
    "tests/programs/test_bodies.py::test_every_layout[*-line]": "the same test with grid",
    "tests/programs/test_bodies.py::test_every_layout[attention-grid]": (
        "the same test with softmax"
    ),
    "tests/programs/test_bodies.py::test_every_layout[perceptron_gradient-grid]": (
        "the same test with perceptron"
    ),
    "tests/programs/test_bodies.py::test_every_layout[sgd_step-grid]": (
        "the same test with perceptron"
    ),
    "tests/ray/test_jax_trainer.py::*": (
        "test_jobs_on_ray.py, whose programs start on the same hosts; a fit is shown here alone"
    ),
    "tests/ray/test_jobs_on_ray.py::test_the_law_of_values_from_a_machine_outside": (
        "test_a_reduction_over_a_slice_as_a_ray_job; the same law on this machine"
    ),
    "tests/ray/test_jobs_on_ray.py::test_the_other_laws": (
        "test_a_killed_worker_is_named_and_a_queue_can_be_left; the same laws on this machine"
    ),
    "tests/ray/test_jobs_on_ray.py::test_the_submitting_process_is_killed": (
        "the same law on this machine"
    ),
    "tests/setup/test_kill.py::test_killed_at_every_step": (
        "test_killed_while_julia_works; other steps are tried here alone"
    ),
    "tests/slurm/test_first_use.py::test_an_array_from_a_wheel_without_the_environment": (
        "test_sbatch_that_exports_nothing; test_jobs.py::test_tasks_of_an_array"
    ),
    "tests/slurm/test_main.py::test_a_process_that_raises_is_named": (
        "test_a_killed_process_is_named"
    ),
    "tests/slurm/test_main.py::test_two_runtimes_are_compared": (
        "test_the_command_of_the_readme; crosscheck/test_run.py::test_two_runtimes"
    ),
    "tests/slurm/test_main.py::test_what_a_program_finds": (
        "test_the_command_of_the_readme; launch/test_run.py"
    ),
    "tests/slurm/test_main.py::test_warned_of_the_time_limit": (
        "launch/test_preemption.py; that a job requeues itself is shown here alone"
    ),
    "tests/slurm/test_steps.py::test_a_plain_jax_program_takes_its_processes_from_the_supervisor": (
        "test_without_a_supervisor; launch/test_any_program.py"
    ),
    "tests/slurm/test_steps.py::test_two_steps_of_one_job_do_not_meet": (
        "the ports of steps in unit/test_process_group_slurm.py"
    ),
    "tests/unit/test_scheduling.py::test_a_worker_that_dies*": (
        "how tests are spread; a worker of pytest-xdist is replaced here alone"
    ),
    "tests/unit/test_template.py::test_programs_of_a_supervisor_are_its_children_as_forks_too": (
        "all supervised runs of the tests, which are forks"
    ),
}
"""The names of tests, in which * stands for anything; and what shows the same in `make test`."""

_TESTS = re.compile("|".join(fnmatch.translate(name.replace("[", "[[]")) for name in SLOW))


def is_slow(name: str) -> bool:
    """Whether `SLOW` has the test of this name."""
    return _TESTS.match(name) is not None


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow tests, unless they are asked for."""
    if config.getoption(OPTION) or any("::" in word for word in config.args):
        return
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[is_slow(item.nodeid)].append(item)
    config.hook.pytest_deselected(items=chosen[True])
    items[:] = chosen[False]
