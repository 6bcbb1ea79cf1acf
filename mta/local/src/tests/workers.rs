//! Batches, and the workers that get them.

use super::*;

#[test]
fn while_a_batch_is_delivered_the_next_one_gathers_up_to_its_bound() {
    let mut bench = own();
    for id in 1..=6 {
        bench.small(id, &["a"]);
    }
    assert_eq!(bench.delivering(), [(1, "a")]);
    let worker = bench.deliver("a");
    assert_eq!(bench.delivering(), [(2, "a"), (3, "a"), (4, "a")]);
    assert_eq!(bench.deliver("a"), worker);
    assert_eq!(bench.delivering(), [(5, "a"), (6, "a")]);
    bench.deliver("a");
    assert!(bench.delivering().is_empty());
    assert_eq!(bench.told().len(), 6);
}

#[test]
fn a_worker_that_dies_with_a_batch_leaves_an_outcome_for_each_of_its_recipients() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    bench.small(2, &["ann", "ann"]);
    bench.small(3, &["ann"]);
    bench.small(4, &["ann"]);
    bench.deliver("ann");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
    let dead = bench.worker_of("ann");
    assert_eq!(bench.delivering(), [(2, "ann"), (2, "ann"), (3, "ann")]);
    bench.die(dead);
    assert_eq!(bench.told(), [codes(2, &["4.3.0", "4.3.0"]), codes(3, &["4.3.0"])]);
    let text = &bench.ends.last().unwrap().1.report().reply.text;
    assert_eq!(&**text, "the worker for ann ended: killed");
    // The next batch goes to a new worker, and the dead one's late answer counts for nothing.
    assert_ne!(bench.deliver("ann"), dead);
    bench.done(dead, vec![delivered(); 3], vec![]);
    assert_eq!(bench.told(), [codes(4, &["2.0.0"])]);
}

#[test]
fn a_worker_that_cannot_be_started_defers_its_batch_and_no_other() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    bench.small(2, &["bob"]);
    bench.die(bench.worker_of("ann"));
    assert_eq!(bench.told(), [codes(1, &["4.3.0"])]);
    bench.deliver("bob");
    assert_eq!(bench.told(), [codes(2, &["2.0.0"])]);
}

#[test]
fn a_user_whose_worker_hangs_delays_no_other_user() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    let hung = bench.worker_of("ann");
    for id in 2..=20 {
        bench.small(id, &["bob"]);
        bench.small(100 + id, &["ann"]);
        bench.pass(Duration::from_secs(60));
        bench.deliver("bob");
        assert_eq!(bench.told(), [codes(id, &["2.0.0"])]);
    }
    // The hung one is ended in time, and its user's mail goes on with a new worker.
    while bench.workers.contains_key(&hung) {
        bench.wait();
    }
    assert_eq!(bench.told(), [codes(1, &["4.3.0"])]);
    let worker = bench.deliver("ann");
    assert_ne!(worker, hung);
    assert_eq!(bench.told().len(), 3);
    bench.done(hung, vec![delivered()], vec![]);
    assert!(bench.told().is_empty());
}

#[test]
fn a_batch_may_take_its_time_and_not_more() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    assert_eq!(bench.wait(), LIMITS.batch_time_max);
    assert_eq!(bench.told(), [codes(1, &["4.3.0"])]);
    assert!(bench.workers.is_empty());
}

#[test]
fn this_process_itself_is_never_ended() {
    let mut bench = own();
    bench.small(1, &["a"]);
    assert_eq!(bench.machine.next_wakeup(), None);
    bench.deliver("a");
    assert_eq!(bench.machine.next_wakeup(), None);
    assert_eq!(bench.workers.len(), 1);
}

#[test]
fn workers_are_bounded_and_the_one_that_is_idle_longest_ends_for_another_user() {
    let mut bench = accounts();
    for (id, user) in [(1, "ann"), (2, "bob"), (3, "cyd"), (4, "dan")] {
        bench.small(id, &[user]);
    }
    assert_eq!(bench.delivering(), [(1, "ann"), (2, "bob")]);
    bench.deliver("bob");
    assert_eq!(bench.delivering(), [(1, "ann"), (3, "cyd")]);
    bench.deliver("ann");
    assert_eq!(bench.delivering(), [(3, "cyd"), (4, "dan")]);
    bench.deliver("cyd");
    bench.pass(Duration::from_secs(1));
    bench.deliver("dan");
    assert_eq!(bench.workers.len(), 2);
    // Both are idle now: dan's stays for dan, cyd's ends for eve.
    bench.small(5, &["dan"]);
    bench.small(6, &["eve"]);
    let users: Vec<_> = bench.workers.values().cloned().collect();
    assert_eq!(users, ["dan", "eve"].map(|name| DeliveryUser::Account(name.into())));
    bench.deliver("dan");
    bench.deliver("eve");
    assert_eq!(bench.told().len(), 6);
}

#[test]
fn an_idle_worker_ends_after_a_while_and_is_started_again_for_new_mail() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    bench.deliver("ann");
    bench.pass(Duration::from_secs(40));
    bench.small(2, &["ann"]);
    bench.deliver("ann");
    assert_eq!(bench.wait(), LIMITS.worker_idle_max);
    assert!(bench.workers.is_empty());
    bench.small(3, &["ann"]);
    bench.deliver("ann");
    assert_eq!(bench.told().len(), 3);
}

#[test]
fn a_worker_that_dies_while_it_is_idle_costs_no_message_an_attempt() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    let idle = bench.deliver("ann");
    bench.die(idle);
    bench.small(2, &["ann"]);
    bench.deliver("ann");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"]), codes(2, &["2.0.0"])]);
}

#[test]
fn a_worker_that_answers_for_another_number_of_recipients_is_not_believed() {
    for outcomes in [0, 1, 3] {
        let mut bench = accounts();
        bench.small(1, &["ann", "ann"]);
        let worker = bench.worker_of("ann");
        bench.done(worker, vec![delivered(); outcomes], vec![]);
        assert_eq!(bench.told(), [codes(1, &["4.3.0", "4.3.0"])], "{outcomes}");
        assert!(bench.workers.is_empty());
    }
}
