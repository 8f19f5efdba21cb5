from __future__ import annotations

from causeway.protocols.contract import Tick
from tests.property.ic_harness import Call, KernelRun, OracleRun, Scenario
from tests.property.ic_views import kernel_happened, kernel_view, oracle_happened, oracle_view, with_failures
from tests.property.ic_programs import ACTOR, ops

def compare(scenario):
    oracle=OracleRun(scenario); whole=KernelRun(scenario, apart=False); apart=KernelRun(scenario, apart=True, via_tables=True)
    for height in range(1, scenario.rounds+1):
        oracle.round(height)
        for run in (whole, apart):
            run.round(Tick(height,height))
            a,b=kernel_view(run), oracle_view(oracle)
            assert a==b
            a,b=kernel_happened(run), with_failures(oracle, oracle_happened(oracle))
            for c in a:
                assert a[c]-b[c]==b[c]-a[c], (height,c,a[c]-b[c],b[c]-a[c])
        assert whole.roots()==apart.roots()

def test_one():
    compare(Scenario((0,1),{0:(0,ACTOR,100),1:(1,"echo",0),2:(None,None,0),3:(1,ACTOR,50)},{},6,{1:[Call(0,0,9,"do",ops(("call",1,"echo",b"x",5,None),("call",3,"take",b"x",5,None),("call",2,"x",b"x",5,None)))]}))
